package fence

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
)

// Web is a store of [Objects] over HTTP: any server that answers HEAD and PUT with ETags, and keeps metadata in headers
// with a common prefix. It needs no SDK; the client's transport signs requests where the store asks for it.
type Web struct {
	Client *http.Client // http.DefaultClient when nil
	URL    string       // of the folder or bucket, without a slash at its end
	Prefix string       // of metadata headers: "X-Amz-Meta-" (default), "X-Goog-Meta-", "X-Ms-Meta-"
	Header http.Header  // added to each PUT, for example "X-Ms-Blob-Type: BlockBlob"
}

// Head implements [Objects].
func (s Web) Head(ctx context.Context, name string) (etag string, meta map[string]string, err error) {
	r, err := s.do(ctx, http.MethodHead, name, nil, nil)
	if err != nil {
		return "", nil, err
	}
	defer r.Body.Close()
	switch {
	case r.StatusCode == http.StatusNotFound:
		return "", nil, nil
	case r.StatusCode != http.StatusOK:
		return "", nil, fmt.Errorf("the store answers %s", r.Status)
	case r.Header.Get("ETag") == "" || strings.HasPrefix(r.Header.Get("ETag"), "W/"):
		return "", nil, fmt.Errorf("%w: it has no strong ETag for the object", ErrUnconditional)
	}
	meta = map[string]string{}
	for header, values := range r.Header {
		if rest, ok := strings.CutPrefix(header, s.prefix()); ok && len(values) > 0 {
			meta[strings.ToLower(rest)] = values[0]
		}
	}
	return r.Header.Get("ETag"), meta, nil
}

// Put implements [Objects].
func (s Web) Put(ctx context.Context, name string, body io.ReadSeeker, meta map[string]string, ifMatch string) error {
	header := s.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	for k, v := range meta {
		header.Set(s.prefix()+k, v)
	}
	if ifMatch == "" {
		header.Set("If-None-Match", "*")
	} else {
		header.Set("If-Match", ifMatch)
	}
	r, err := s.do(ctx, http.MethodPut, name, body, header)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	switch r.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return nil
	case http.StatusPreconditionFailed, http.StatusConflict:
		return fmt.Errorf("%w: the store answers %s", ErrChanged, r.Status)
	}
	return fmt.Errorf("the store answers %s", r.Status)
}

func (s Web) prefix() string {
	return http.CanonicalHeaderKey(cmp.Or(s.Prefix, "X-Amz-Meta-"))
}

func (s Web) do(ctx context.Context, method, name string, body io.ReadSeeker, header http.Header) (*http.Response, error) {
	var reader io.Reader
	size := int64(0)
	if body != nil {
		end, err := body.Seek(0, io.SeekEnd)
		if err != nil {
			return nil, err
		}
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		if reader, size = io.NopCloser(body), end; size == 0 {
			reader = http.NoBody
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, s.URL+(&url.URL{Path: "/" + name}).EscapedPath(), reader)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.ContentLength = size // stores refuse a body of unknown length
	}
	maps.Copy(r.Header, header)
	return cmp.Or(s.Client, http.DefaultClient).Do(r)
}
