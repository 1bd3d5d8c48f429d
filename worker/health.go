package worker

import "net/http"

// Ready returns a handler for readiness probes. It answers 200 from the start of the worker to the beginning of its
// shutdown, while the worker can take tasks and lock their keys, and 503 with the reasons otherwise: see
// [attach.Attached.Ready].
func (w *Worker) Ready() http.Handler { return w.attached.Ready() }

// Live returns a handler for liveness probes. It answers 503 if only a restart can help the worker, and 200 otherwise,
// during outages too: see [attach.Attached.Live].
func (w *Worker) Live() http.Handler { return w.attached.Live() }
