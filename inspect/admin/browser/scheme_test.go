package browser_test

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/railtoken/railtoken/worker"
)

// faint lists the texts of the page whose contrast to their background is less than 4.5, the least that WCAG 2 allows
// for text of this size.
const faint = `(() => {
	const parse = text => (text.match(/[\d.]+/g) || []).map(Number);
	const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
		.reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
	const behind = e => {
		for (; e; e = e.parentElement) {
			const color = parse(getComputedStyle(e).backgroundColor);
			if (color.length === 3 || color[3] === 1) return color;
		}
		return [255, 255, 255];
	};
	const found = [];
	for (const e of document.body.querySelectorAll('*')) {
		if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
		const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
		const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (contrast < 4.5) found.push(e.tagName + '.' + e.className + ' ' + e.textContent.trim().slice(0, 40) + ': ' + contrast.toFixed(1));
	}
	return found;
})()`

func TestTextIsReadableInBothColorSchemes(t *testing.T) {
	r := newRig(t).work(worker.Config{DisableReports: true})
	r.openShop()
	for _, outcome := range []string{"begun", "done", "failed"} {
		r.client.XAdd(t.Context(), &redis.XAddArgs{Stream: "railtoken:audit", Values: []any{
			"action", "drop", "outcome", outcome, "key", "order:1042", "queue", "default", "task", "audit-1042", "by", "ann",
			"why", "ordered twice", "result", "Task default/audit-1042 is deleted.",
		}})
	}
	for _, scheme := range []string{"light", "dark"} {
		r.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
			return err
		}))
		for _, page := range []string{"", "keys", "key?key=order%3A1042", "waiting", "workers", "servers", "archived", "audit"} {
			for _, width := range []int64{1400, 400} {
				r.run(chromedp.EmulateViewport(width, 800))
				r.open("/" + page)
				r.shows("live")
				if texts := value(r, chromedp.Evaluate[[]string](faint)); len(texts) > 0 {
					t.Errorf("/%s, %s, %d pixels: %q", page, scheme, width, texts)
				}
				if wide := value(r, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > width {
					t.Errorf("/%s is %d pixels wide on a screen of %d", page, wide, width)
				}
			}
		}
	}
}
