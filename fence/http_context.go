package fence

import "context"

// received is the token that came with a request.
type received struct{ token Token }

type (
	receivedKey  struct{}
	operationKey struct{}
)

// WithOp returns a context that names the operation of the HTTP requests that [Transport] sends with it, for example a
// task ID, or a task ID and a step. The operation must be the same when the task runs again, and must be different for
// each request that is to have its own effect.
func WithOp(ctx context.Context, op string) context.Context {
	return context.WithValue(ctx, operationKey{}, op)
}

// Op returns the operation of a context: on a server behind [Handler], the Idempotency-Key of the request, for
// [SQL.Once]; on a client, what [WithOp] was given. The two differ, because [Transport] sends a hash of the operation
// and of the keys of the lease. Op returns an empty string if there is none.
func Op(ctx context.Context) string {
	op, _ := ctx.Value(operationKey{}).(string)
	return op
}
