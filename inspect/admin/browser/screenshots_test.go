package browser_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/internal/holdings"
	"github.com/railtoken/railtoken/internal/line"
	"github.com/railtoken/railtoken/internal/lockwire"
	"github.com/railtoken/railtoken/middleware"
	"github.com/railtoken/railtoken/worker"
)

var screenshots = flag.String("screenshots", "", "write pictures of the admin page into this folder")

// mostBytes limits a picture.
const mostBytes = 150_000

// held is a key with its holder and the tasks that wait for it, for pictures.
type held struct {
	key, holder, taskType string
	since                 time.Duration // of the holder
	waiters               []string
	oldest                time.Duration // of the waiters
}

var shop = []held{
	{"order:1042", "allocate-1042", "order:allocate", 754 * time.Second, []string{"audit-1042", "reprice-1042", "export-1042"}, 731 * time.Second},
	{"order:1077", "allocate-1077", "order:allocate", 48 * time.Second, []string{"audit-1077", "export-1077"}, 41 * time.Second},
	{"account:acme-gmbh", "settle-88120", "account:settle", 127 * time.Second, []string{"settle-88121", "settle-88122", "settle-88123", "settle-88124"}, 119 * time.Second},
	{"warehouse:hamburg", "count-17", "warehouse:count", 9 * time.Second, []string{"count-18"}, 4 * time.Second},
	{"order:1101", "allocate-1101", "order:allocate", 6 * time.Second, nil, 0},
	{"order:1108", "allocate-1108", "order:allocate", 3 * time.Second, nil, 0},
}

func TestPicturesFitTheScreen(t *testing.T) {
	r := newRig(t).work(worker.Config{DisableReports: true})
	r.openShop()
	pages := map[string]string{"overview": "/", "keys": "/keys", "key": "/key?key=order%3A1042"}
	for name, path := range pages { // each page must fit, and pictures are only made for a folder
		for _, width := range []int64{1400, 400} {
			r.run(chromedp.EmulateViewport(width, 800))
			r.open(path)
			r.shows("live")
			r.shows("order:1042")
			if wide := value(r, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > width {
				t.Errorf("%s is %d pixels wide on a screen of %d", name, wide, width)
			}
			if *screenshots == "" {
				continue
			}
			picture := smaller(t, value(r, chromedp.FullScreenshot(100)))
			if len(picture) > mostBytes {
				t.Errorf("%s at %d has %d bytes, want %d at most", name, width, len(picture), mostBytes)
			}
			file := filepath.Join(*screenshots, fmt.Sprintf("admin-%s-%d.png", name, width))
			if err := os.WriteFile(file, picture, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// holdSince makes the lock of a key one that a worker took at an earlier time.
func (r *rig) holdSince(h held, w *holdings.Worker) {
	r.Helper()
	names, err := lockwire.KeysOf(h.key, nil)
	if err != nil {
		r.Fatal(err)
	}
	name, _, _ := strings.Cut(r.client.Get(r.Context(), names.Lock).Val(), ".")
	since := strconv.FormatInt(time.Now().Add(-h.since).UnixMilli(), 36)
	value := fmt.Sprintf("%s.%s.%s/%d/%s/%s", name, since, w.Host, w.PID, h.taskType, h.holder)
	if err := r.client.Set(r.Context(), names.Lock, value, redis.KeepTTL).Err(); err != nil {
		r.Fatal(err)
	}
}

// smaller returns a picture in PNG with its 256 most frequent colors: the others are shades at the edges of letters.
func smaller(t *testing.T, picture []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	frequency := map[color.Color]int{}
	area := full.Bounds()
	for y := range area.Dy() {
		for x := range area.Dx() {
			frequency[full.At(x, y)]++
		}
	}
	palette := slices.SortedFunc(maps.Keys(frequency), func(a, b color.Color) int { return cmp.Compare(frequency[b], frequency[a]) })
	few := image.NewPaletted(area, palette[:min(256, len(palette))])
	draw.Draw(few, area, full, area.Min, draw.Src)
	var text bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&text, few); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// openShop has tasks hold the keys of a shop and wait for them, since times that differ, on two workers.
func (r *rig) openShop() {
	r.Helper()
	ctx, now := r.Context(), time.Now()
	workers := []holdings.Worker{{Host: "orders-1", PID: 4121}, {Host: "orders-2", PID: 3987}}
	for i, h := range shop {
		r.task(middleware.Acquired, h.taskType, h.key, h.holder)
		for n, id := range h.waiters {
			r.task(middleware.Parked, "order:audit", h.key, id)
			first := now.Add(-h.oldest + h.oldest*time.Duration(n)/5)
			hash := line.Task{Queue: "default", ID: id}.Hash()
			w := line.ParseWait(r.client.HGet(ctx, hash, line.WaitField).Val())
			w.First = first
			if err := r.client.HSet(ctx, hash, line.WaitField, w.String()).Err(); err != nil {
				r.Fatal(err)
			}
		}
		w := &workers[i%len(workers)]
		r.holdSince(h, w)
		w.Keys, w.Running, w.Conflicts = w.Keys+1, w.Running+1, w.Conflicts+int64(len(h.waiters))
		w.Held = append(w.Held, holdings.Held{
			Key: []byte(h.key), Queue: "default", ID: h.holder, Type: h.taskType, Since: now.Add(-h.since).UnixMilli(), Mode: holdings.ModeTask,
		})
	}
	r.rememberShop(now)
	for _, w := range workers {
		w.Version, w.Config, w.Slots, w.Queues = "v1.0.0", "9f2c61d0", 8, map[string]int{"default": 1}
		w.Since = now.Add(-26 * time.Hour).UnixMilli()
		text, err := json.Marshal(w)
		if err != nil {
			r.Fatal(err)
		}
		if err := r.client.Set(ctx, holdings.Key(w.Host), text, 0).Err(); err != nil {
			r.Fatal(err)
		}
		if err := r.client.ZAdd(ctx, holdings.Workers, redis.Z{Score: float64(now.UnixMilli()), Member: w.Host}).Err(); err != nil {
			r.Fatal(err)
		}
	}
}

// rememberShop has the workers report what happened in the last hour: a busy time with a crowd, and one without workers.
func (r *rig) rememberShop(now time.Time) {
	r.Helper()
	for ago := range holdings.Minutes {
		if ago > 33 && ago < 38 {
			continue
		}
		crowd := max(0, 14-(ago-24)*(ago-24)/3)
		all := holdings.Point{Waiting: 7 + ago%3 + crowd, Holds: 90 + ago*37%23, Wakes: 7 + ago%5 + 2*crowd, Refusals: 8 + ago*3%7 + 2*crowd}
		all.Oldest = time.Duration(20+ago*11%40+20*crowd) * time.Second
		key := holdings.Point{Holds: -1}
		if ago <= 12 {
			all.Oldest, all.Waiting = max(all.Oldest, time.Duration(12-ago)*time.Minute), all.Waiting+3
			key = holdings.Point{Waiting: 3 - ago/5, Oldest: time.Duration(12-ago) * time.Minute, Refusals: ago / 9}
		}
		keys := map[string]holdings.Point{}
		if key.Holds == 0 {
			keys["order:1042"] = key
		}
		if _, err := holdings.Remember(r.Context(), r.client, now.Add(-time.Duration(ago)*time.Minute), all, keys, false); err != nil {
			r.Fatal(err)
		}
	}
}
