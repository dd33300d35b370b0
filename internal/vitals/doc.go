// Package vitals keeps how an endpoint fares in a few hundred bytes: the outcomes of
// its latest attempts, counts by time, latencies on a logarithmic scale, and the
// streak of failures that it may be in (docs/design.md §6).
//
// What a process sees is gathered in a [Delta], at a cost of nothing but arithmetic
// per attempt, and applied to the stored [State] now and then. Several processes may
// do so for one endpoint, one after the other; what an application brings to light
// is returned as findings, so that whoever stores the new state together with them
// tells each of them once.
//
// Nothing here locks or reads a clock.
package vitals
