// Package report holds the figures of a benchmark, judges them by their targets, and writes them as Markdown with plots in SVG.
//
// A part of the benchmark measures in rounds, in each of which every contestant has its turn, and returns sections. Figures are kept
// for each round, as ratios are taken within a round: the machine's mood is the same for both then.
package report
