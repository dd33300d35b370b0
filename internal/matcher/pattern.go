package matcher

import (
	"errors"
	"fmt"
	"strings"
)

// MaxTypeBytes is the longest event type (docs/design.md §2.1). A pattern is that long plus
// its wildcard.
const MaxTypeBytes = 128

// ErrType and ErrPattern are what the errors of ValidateType and ValidatePattern are.
var (
	ErrType    = errors.New("event type")
	ErrPattern = errors.New("event type pattern")
)

const (
	everything = "*"
	openEnd    = ".*"
)

// ValidateType checks an event type: segments of ASCII letters, digits and underscores
// with single dots between them, at most MaxTypeBytes long. Types are case-sensitive.
func ValidateType(eventType string) error {
	if problem := typeProblem(eventType); problem != "" {
		return fmt.Errorf("%w %.140q %s", ErrType, eventType, problem)
	}
	return nil
}

// ValidatePattern checks a subscription's pattern: an event type, which matches only
// itself; a type followed by ".*", which matches whatever begins with the type and a
// dot; or "*", which matches everything.
func ValidatePattern(pattern string) error {
	if pattern == everything {
		return nil
	}
	if problem := typeProblem(strings.TrimSuffix(pattern, openEnd)); problem != "" {
		return fmt.Errorf("%w %.140q %s (* alone matches everything, order.* all that begins with order.)",
			ErrPattern, pattern, problem)
	}
	return nil
}

// typeProblem returns "" for a valid type.
func typeProblem(eventType string) string {
	if eventType == "" {
		return "is empty"
	}
	if len(eventType) > MaxTypeBytes {
		return fmt.Sprintf("is longer than %d bytes", MaxTypeBytes)
	}
	previous := byte('.')
	for i := range len(eventType) {
		c := eventType[i]
		if c == '.' && previous == '.' {
			return "has an empty segment"
		}
		if c != '.' && !isWord(c) {
			return "may hold only letters, digits, underscores and dots between them"
		}
		previous = c
	}
	if previous == '.' {
		return "ends with a dot"
	}
	return ""
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}
