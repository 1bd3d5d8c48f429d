package crashtest_test

import (
	"slices"
	"time"

	"github.com/railtoken/railtoken/middleware"
)

// inOrder are the settings of a process that runs tasks in order.
func inOrder(o middleware.Order) settings {
	return settings{Queues: own, Strategy: middleware.Requeue{Order: o}}
}

// lineUp are jobs of which some are enqueued in line and some join it when they run, and one fails.
var lineUp = []job{
	{ID: "holder", Hold: 6 * time.Second, Retries: 5, InLine: true},
	{ID: "first", At: 2 * time.Second, Hold: time.Second, Fails: 1, Retries: 5, InLine: true},
	{ID: "second", At: 3 * time.Second, Hold: time.Second, Retries: 5},
	{ID: "third", At: 4500 * time.Millisecond, Hold: time.Second, Retries: 5, InLine: true},
	{ID: "last", At: 5 * time.Second, Hold: time.Second, Retries: 5, InLine: true},
}

// sequenceSteps are steps of those jobs.
var sequenceSteps = []string{"sequence_join", "sequence_remove", "wake task", "park", "asynq/retry", "asynq/forward"}

// enqueueSteps are steps of those who enqueue them.
var enqueueSteps = []string{ofProducer + "enqueue", ofProducer + "join"}

// orderScenarios are those in which tasks run in order.
var orderScenarios = []scenario{
	{
		name: "in order", settings: inOrder(middleware.FIFO), order: middleware.FIFO,
		jobs: lineUp, within: 24 * time.Second, steps: slices.Concat(enqueueSteps, sequenceSteps),
	},
	{
		name: "keeping order", settings: inOrder(middleware.StrictFIFO), order: middleware.StrictFIFO,
		jobs: lineUp, within: 24 * time.Second, steps: slices.Concat(enqueueSteps, sequenceSteps),
	},
	{
		name: "in order on a Cluster", settings: settings{Queues: own, Cluster: true, Strategy: middleware.Requeue{Order: middleware.FIFO}},
		order: middleware.FIFO, jobs: lineUp, within: 24 * time.Second,
		steps: slices.Concat(enqueueSteps, []string{"sequence_join", "sequence_remove", "suspend", "enter", "join", "discard", "promote"}),
	},
	{
		name: "briefly in order", settings: settings{Queues: own, Eager: true, Strategy: middleware.Requeue{Order: middleware.FIFO}},
		order: middleware.FIFO,
		jobs: []job{
			{ID: "one", Hold: 60 * time.Millisecond, Retries: 5, InLine: true},
			{ID: "two", Hold: 60 * time.Millisecond, Retries: 5, InLine: true},
			{ID: "three", At: 20 * time.Millisecond, Hold: 60 * time.Millisecond, Retries: 5, InLine: true},
			{ID: "four", At: 50 * time.Millisecond, Hold: 60 * time.Millisecond, Retries: 5},
			{ID: "five", At: 80 * time.Millisecond, Hold: 60 * time.Millisecond, Retries: 5, InLine: true},
			// The first ones may all be parked and woken one by one. These two come when the others have run.
			{ID: "six", At: time.Second, Hold: 60 * time.Millisecond, Retries: 5, InLine: true},
			{ID: "seven", At: time.Second, Hold: 60 * time.Millisecond, Retries: 5, InLine: true},
			{ID: "eight", At: 2 * time.Second, Hold: 120 * time.Millisecond, Retries: 5, InLine: true},
			{ID: "nine", At: 2 * time.Second, Hold: 60 * time.Millisecond, Retries: 5, InLine: true},
			{ID: "ten", At: 2 * time.Second, Hold: 60 * time.Millisecond, Retries: 5, InLine: true},
		},
		within: 6 * time.Second, steps: slices.Concat(enqueueSteps, []string{"sequence_join", "sequence_remove", "wake task", "park"}),
	},
	{
		name: "last attempt in order", settings: inOrder(middleware.FIFO), order: middleware.FIFO,
		jobs: []job{
			{ID: "holder", Hold: 6 * time.Second, Retries: 5, InLine: true},
			{ID: "first", At: 2 * time.Second, Hold: time.Second, InLine: true},
			{ID: "second", At: 3 * time.Second, Hold: time.Second, Retries: 5, InLine: true},
		},
		within: 20 * time.Second,
		steps:  slices.Concat(enqueueSteps, []string{"sequence_join", "sequence_remove", "wake task", "park"}),
	},
	{
		name: "two processes in order", settings: inOrder(middleware.StrictFIFO), order: middleware.StrictFIFO, mate: true,
		jobs: lineUp[:3], within: 24 * time.Second, steps: sequenceSteps[:5], // either of the two forwards
	},
}
