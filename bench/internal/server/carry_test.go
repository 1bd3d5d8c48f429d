package server

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is an end of a connection in memory: a Write returns when its bytes were read.
type pipe struct {
	*io.PipeReader
	*io.PipeWriter
}

func (p pipe) CloseWrite() error { return p.PipeWriter.Close() }
func (p pipe) Close() error      { return p.PipeWriter.Close() }

func TestManyAreUnderWayAtTheSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const far, many, apart = 500 * time.Millisecond, 30, time.Millisecond
		here, sent := io.Pipe()
		received, there := io.Pipe()
		go carry(pipe{PipeReader: here, PipeWriter: sent}, pipe{PipeReader: received, PipeWriter: there}, far,
			func(due time.Time) { time.Sleep(time.Until(due)) })
		began := time.Now()
		go func() {
			for i := range many {
				if _, err := sent.Write([]byte{byte(i)}); err != nil {
					t.Error(err)
				}
				time.Sleep(apart)
			}
			_ = sent.Close()
		}()
		buf := make([]byte, many)
		for i := range many {
			n, err := received.Read(buf)
			if err != nil || n != 1 || buf[0] != byte(i) {
				t.Fatalf("piece %d is %v, %v", i, buf[:n], err)
			}
			if got, want := time.Since(began), far+time.Duration(i)*apart; got != want {
				t.Errorf("piece %d has arrived after %v, want %v", i, got, want)
			}
		}
		if n, err := received.Read(buf); n != 0 || err != io.EOF { //nolint:errorlint // as io.Reader says
			t.Errorf("after the end came %d bytes, %v", n, err)
		}
		if got, want := time.Since(began), far+many*apart; got != want {
			t.Errorf("the end has arrived after %v, want %v", got, want)
		}
	})
}
