//go:build !long

package scenario_test

// stretch is by how much longer the stories take than they must.
const stretch = 1
