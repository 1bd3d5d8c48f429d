package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// MetaName is the name of the metadata entry that holds the token of an object.
const MetaName = "railtoken-fence"

// ErrChanged is what [Objects] returns for a Put whose condition does not hold: the object has another ETag, or exists.
var ErrChanged = errors.New("fence: the object was changed or created meanwhile")

// ErrUnconditional reports that a store ignores the conditions of a Put. Such a store cannot be fenced.
var ErrUnconditional = errors.New("fence: the store ignores If-Match, so it cannot refuse a late writer: use another store or version")

// Objects is a store of objects with ETags, such as S3, Google Cloud Storage or Azure Blob Storage: two methods around
// their clients, or [Web].
type Objects interface {
	// Head returns the ETag and the metadata of an object, with names in lower case. An empty ETag means that there is no
	// object.
	Head(ctx context.Context, name string) (etag string, meta map[string]string, err error)
	// Put writes an object if its ETag is ifMatch; with an empty ifMatch, if it does not exist. If the condition does
	// not hold (the store answers 412, or 409 for a concurrent write), it writes nothing, and the error matches
	// [ErrChanged].
	Put(ctx context.Context, name string, body io.ReadSeeker, meta map[string]string, ifMatch string) error
}

// maxPuts is how often PutFenced tries to write.
const maxPuts = 5

// PutFenced writes an object with a token in its metadata, unless the object has a larger one. Other metadata is kept.
// The ETag tells concurrent writes apart, and the larger token wins, whichever comes first.
//
// With an empty etag the object may have any content. For a read-modify-write, pass the ETag of what was read: the
// write then succeeds only if nothing was written since. A holder must claim the object before it works on what it has
// read, by a PutFenced of the unchanged content: otherwise an earlier holder could still write, and then this holder's
// write fails.
//
// body is read from its start, once for each attempt.
//
// The error matches [ErrFenced] if the object has a larger token, and [ErrRetry] if the object has changed since it was
// read, or others have written to it five times in a row.
func PutFenced(ctx context.Context, o Objects, name string, t Token, body io.ReadSeeker, etag string) error {
	if err := t.validate(); err != nil {
		return err
	}
	if o == nil || body == nil || name == "" {
		return invalid("PutFenced needs a store, a name and a body")
	}
	for try := range maxPuts {
		if try > 0 {
			timer := time.NewTimer(rand.N(20 * time.Millisecond << try)) //nolint:gosec // jitter
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return fmt.Errorf("fence: put: %w", context.Cause(ctx))
			}
		}
		current, meta, err := o.Head(ctx, name)
		if err != nil {
			return fmt.Errorf("fence: head: %w", err)
		}
		if err := mayPut(t, meta, current, etag); err != nil {
			return err
		}
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("fence: rewind the body: %w", err)
		}
		meta = maps.Clone(meta)
		if meta == nil {
			meta = map[string]string{}
		}
		meta[MetaName] = strconv.FormatInt(t.N, 10)
		err = o.Put(ctx, name, body, meta, current)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrChanged) {
			return fmt.Errorf("fence: put: %w", err)
		}
	}
	return fmt.Errorf("%w: others wrote to the object %d times meanwhile", ErrRetry, maxPuts)
}

// mayPut returns nil if a token may write to an object with this metadata and ETag.
func mayPut(t Token, meta map[string]string, current, read string) error {
	seen := int64(0)
	if text, ok := meta[MetaName]; ok {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 || n > MaxToken {
			return invalid("the object's metadata %s is %q: not a token", MetaName, text)
		}
		seen = n
	}
	if err := mayClaim(t, seen); err != nil {
		return err
	}
	if read != "" && read != current {
		return fmt.Errorf("%w: the object has changed since it was read", ErrRetry)
	}
	return nil
}

// ProbeObjects writes an object of its own, and returns an error that matches [ErrUnconditional] if the store accepts a
// write whose condition does not hold. Call it once when the program starts; some stores that speak S3's protocol
// ignore conditions. The object stays, and name must be used for nothing else.
func ProbeObjects(ctx context.Context, o Objects, name string) error {
	if o == nil || name == "" {
		return invalid("ProbeObjects needs a store and a name")
	}
	body := func() io.ReadSeeker {
		return strings.NewReader("railtoken probes whether this store checks If-Match\n")
	}
	etag, _, err := o.Head(ctx, name)
	if err == nil && etag == "" {
		if err = o.Put(ctx, name, body(), nil, ""); err == nil || errors.Is(err, ErrChanged) {
			etag, _, err = o.Head(ctx, name)
		}
	}
	if err == nil && etag == "" {
		err = errors.New("the object that was written has no ETag")
	}
	if err != nil {
		return fmt.Errorf("fence: probe: %w", err)
	}
	for _, wrong := range []string{"", `"0123456789abcdef0123456789abcdef"`} { // it exists, and has another ETag
		switch err := o.Put(ctx, name, body(), nil, wrong); {
		case err == nil:
			return ErrUnconditional
		case !errors.Is(err, ErrChanged):
			return fmt.Errorf("fence: probe: %w", err)
		}
	}
	return nil
}
