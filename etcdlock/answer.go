package etcdlock

import (
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// answer is the outcome of an attempt: granted at a revision, or refused by the lock of a key.
type answer struct {
	granted  bool
	revision int64

	key  string
	lock *mvccpb.KeyValue
}

// errNoHolder reports an answer that etcd cannot give.
var errNoHolder = errors.New("etcd refuses an attempt for keys that are free")

// readAnswer reads the reply to the transaction of an attempt. A refusal that has subscribed does not name the holder.
func readAnswer(resp *clientv3.TxnResponse, keys []string) (answer, error) {
	if resp.Succeeded {
		return answer{granted: true, revision: resp.Header.GetRevision()}, nil
	}
	if len(resp.Responses) > 0 && resp.Responses[0].GetResponsePut() != nil {
		return answer{}, nil
	}
	for i, key := range keys {
		if locks := found(resp, i); len(locks) > 0 {
			return answer{key: key, lock: locks[0]}, nil
		}
	}
	return answer{}, errNoHolder
}

// isCreatedAt reports whether there is a lock that was created at a revision.
func isCreatedAt(locks []*mvccpb.KeyValue, revision int64) bool {
	return len(locks) > 0 && locks[0].CreateRevision == revision
}

// found returns what the i-th operation of a transaction has found.
func found(resp *clientv3.TxnResponse, i int) []*mvccpb.KeyValue {
	if i >= len(resp.Responses) {
		return nil
	}
	return resp.Responses[i].GetResponseRange().GetKvs()
}
