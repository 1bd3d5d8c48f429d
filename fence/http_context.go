package fence

import "context"

// received is the token that came with a request.
type received struct{ token Token }

type (
	receivedKey  struct{}
	operationKey struct{}
)

// WithOp returns a context whose HTTP requests through [Transport] are the operation op of the key, for example a task
// ID, or a task ID and a step. The operation must be the same when the task runs again, and another one for each
// request that shall have an effect of its own.
func WithOp(ctx context.Context, op string) context.Context {
	return context.WithValue(ctx, operationKey{}, op)
}

// Op returns the operation of a context: on a server behind [Handler] the Idempotency-Key of the request, for
// [SQL.Once]; on a client what [WithOp] was given. It is empty if there is none.
func Op(ctx context.Context) string {
	op, _ := ctx.Value(operationKey{}).(string)
	return op
}
