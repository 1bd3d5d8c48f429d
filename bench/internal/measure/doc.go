// Package measure puts load on locks and says how much they bore: how long one caller waits for a lock that is free, how many
// pairs of acquire and release many callers get done, and how well those who want the same key share it.
//
// It knows nothing of any lock: what it measures is a function. Figures of one machine at one moment mean little, so contestants
// are measured in turns ([Turns]) and compared by the ratios within one round ([Ratios]).
package measure
