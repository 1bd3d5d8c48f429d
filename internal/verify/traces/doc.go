// Package traces has no code: its tests record runs of real workers on a real Redis, and say what each of the scripts that they send has
// done, in the words of model/fused.pml. scripts/traces.sh has the model explain each run.
//
// Nothing is added to the workers. MONITOR shows each script and the commands in it, in the order in which Redis executes them. A replica
// that executes the same commands shows the state after each script, and handlers mark their begin and end by commands of their own.
package traces
