// Package crash kills, stops, blinds and cuts off processes that use the library,
// and counts what arrives. A process is this test program, started again.
package crash
