package middleware

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/railtoken/railtoken/internal/parking"
)

const (
	// comingLeast and comingMost bound how long a task that was woken is expected: several times as long as others took. Another server may
	// have fetched it, or an operator deleted it.
	comingLeast, comingMost = 20 * time.Millisecond, 2 * time.Second
	// idleDeck is how long a key is remembered for which nothing happens.
	idleDeck = time.Minute
	// fewDecks is how many keys are remembered before those are looked for that can be forgotten.
	fewDecks = 256
)

// mean is a moving average. Zero says that there was nothing to average yet.
type mean time.Duration

func (m *mean) add(d time.Duration) {
	switch {
	case d <= 0:
	case *m == 0:
		*m = mean(d)
	default:
		*m += (mean(d) - *m) / 8
	}
}

// deck is what a server knows of a key that tasks wait for.
type deck struct {
	waiting  int       // tasks in their slots
	asking   int       // tasks that are being woken
	since    uint64    // how many tasks had arrived when the first of these wakes was begun
	coming   []promise // to tasks that were woken and are on their way
	places   int       // how many may be on deck, by the last decision
	parked   int       // tasks in the delay queue, as far as this server knows
	absorbed bool      // the key was given back and nobody woken, because somebody waits here
	hold     mean      // how long the key is held
	used     time.Time
}

// promise is a place on deck for a task that was woken.
type promise struct {
	task parking.Task
	at   time.Time
}

// decks is what a server knows of the keys that tasks wait for. It decides nothing about who may have a key, and when it is
// wrong, a task waits longer or runs once more than it had to.
type decks struct {
	spare    func() bool // reports whether a slot may be kept for a task on standby; always when nil
	mu       sync.Mutex
	keys     map[string]*deck
	coming   map[parking.Task]string // the keys of the tasks that were promised a place
	early    map[parking.Task]uint64 // tasks that have arrived while wakes were under way, and which arrival that was
	arrivals uint64
	asking   int  // tasks that are being woken, of all keys
	pickup   mean // from the wake of a task to its run
	sweep    int  // how many keys there may be before the next look for idle ones
	crowd    int  // how many tasks may be early before the next look for those that no wake under way can be about
}

// state is what is known of a key at a conflict.
type state struct {
	onDeck       int // tasks that have a place, or the promise of one
	hold, pickup time.Duration
}

// arrive notes that the run of a task begins, and reports whether this server has promised it a place on deck for a key.
func (k *decks) arrive(t parking.Task) (key string, promised bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, ok := k.coming[t]
	if !ok {
		if k.asking > 0 {
			k.noteEarly(t)
		}
		return "", false
	}
	delete(k.coming, t)
	d := k.keys[key]
	for i, p := range d.coming {
		if p.task == t {
			k.pickup.add(time.Since(p.at))
			d.coming = slices.Delete(d.coming, i, i+1)
			break
		}
	}
	return key, true
}

// noteEarly notes that a task has arrived of which a wake under way may tell only now. The caller holds the mutex.
func (k *decks) noteEarly(t parking.Task) {
	if len(k.early) >= k.crowd {
		oldest := k.arrivals
		for _, d := range k.keys {
			if d.asking > 0 {
				oldest = min(oldest, d.since)
			}
		}
		maps.DeleteFunc(k.early, func(_ parking.Task, n uint64) bool { return n <= oldest })
		k.crowd = max(2*len(k.early), fewDecks)
	}
	k.arrivals++
	k.early[t] = k.arrivals
}

// ask notes that so many tasks are being woken for a key. The caller holds the mutex.
func (k *decks) ask(d *deck, n int) {
	if d.asking == 0 {
		d.since = k.arrivals
	}
	d.asking += n
	k.asking += n
}

// look returns what is known of a key.
func (k *decks) look(key string) state {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := state{pickup: time.Duration(k.pickup)}
	if d := k.keys[key]; d != nil {
		k.expire(d, time.Now())
		s.onDeck, s.hold = d.waiting+len(d.coming), time.Duration(d.hold)
	}
	return s
}

// expire forgets promises that nobody came for. The caller holds the mutex.
func (k *decks) expire(d *deck, now time.Time) {
	patience := comingMost
	if k.pickup > 0 {
		patience = min(max(8*time.Duration(k.pickup), comingLeast), comingMost)
	}
	d.coming = slices.DeleteFunc(d.coming, func(p promise) bool {
		if now.Sub(p.at) < patience {
			return false
		}
		delete(k.coming, p.task)
		return true
	})
}

// enter takes a place on deck, one of so many, and reports whether there was one. A task that was promised one always gets it.
func (k *decks) enter(key string, places int, promised bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.deck(key)
	d.places = places
	if !promised && d.waiting+len(d.coming) >= places {
		return false
	}
	d.waiting++
	return true
}

// leave gives a place on deck back. It reports whether a wake must be passed on that this task has absorbed and makes nothing of: got says
// that it has the key.
func (k *decks) leave(key string, got bool) (passOn bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.deck(key)
	d.waiting--
	if got {
		d.absorbed = false
		return false
	}
	if d.waiting > 0 || !d.absorbed {
		return false
	}
	d.absorbed = false
	k.ask(d, 1)
	return true
}

// park notes how many tasks are parked on a key, and how many may be on deck for it.
func (k *decks) park(key string, parked, places int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.deck(key)
	d.parked, d.places = parked, places
}

// release notes that a key was given back after it had been held for a time, and returns how many tasks to wake, for whom it keeps places
// free. contended says that somebody has asked to be told.
func (k *decks) release(key string, held time.Duration, handedOn, contended bool) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.keys[key]
	if d == nil {
		if !contended {
			return 0
		}
		d = k.deck(key)
	}
	d.hold.add(held)
	if d.parked == 0 && !contended {
		return 0
	}
	d.used = time.Now()
	k.expire(d, d.used)
	n := toWake(k.open(d), d.waiting, d.asking+len(d.coming), handedOn)
	if !handedOn && d.waiting > 0 {
		d.absorbed = true
	}
	k.ask(d, n)
	return n
}

// isAwaited reports whether a task of this server waits in its slot for a key: it takes the key when it is given back.
func (k *decks) isAwaited(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.keys[key]
	return d != nil && d.waiting > 0
}

// held notes how long a key was held, if anything is known of it.
func (k *decks) held(key string, d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.keys[key]; known != nil {
		known.hold.add(d)
	}
}

// placesFor returns how many tasks may be on deck for a key at this moment.
func (k *decks) placesFor(key string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.keys[key]; d != nil {
		return k.open(d)
	}
	return 0
}

// open returns how many places on deck there are for a key at this moment. The caller holds the mutex.
func (k *decks) open(d *deck) int {
	if k.spare != nil && !k.spare() {
		return 0
	}
	return d.places
}

// woke notes what has come of waking so many tasks; ok is false when nobody knows.
func (k *decks) woke(key string, asked int, w parking.Woken, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.keys[key]; d != nil {
		d.asking -= asked
		if ok {
			d.parked = w.Left
		}
		for _, t := range w.Tasks {
			if k.early[t] <= d.since { // else it is here already
				d.coming = append(d.coming, promise{t, d.used})
				k.coming[t] = key
			}
		}
	}
	if k.asking -= asked; k.asking == 0 {
		clear(k.early)
	}
}

// deck returns what is known of a key, and makes room for it. The caller holds the mutex.
func (k *decks) deck(key string) *deck {
	now := time.Now()
	d := k.keys[key]
	if d == nil {
		k.forget(now)
		d = &deck{}
		k.keys[key] = d
	}
	d.used = now
	return d
}

// forget drops the keys for which nothing has happened for a while, each time that their number has doubled. The caller holds the mutex.
func (k *decks) forget(now time.Time) {
	if k.keys == nil {
		k.keys, k.sweep = map[string]*deck{}, fewDecks
		k.coming, k.early = map[parking.Task]string{}, map[parking.Task]uint64{}
	}
	if len(k.keys) < k.sweep {
		return
	}
	for key, d := range k.keys {
		k.expire(d, now)
		if d.waiting == 0 && d.asking == 0 && len(d.coming) == 0 && now.Sub(d.used) > idleDeck {
			delete(k.keys, key)
		}
	}
	k.sweep = max(2*len(k.keys), fewDecks)
}
