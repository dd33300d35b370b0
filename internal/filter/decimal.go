package filter

import (
	"bytes"
	"cmp"
	"math"
)

// maxExponent bounds the exponents of a filter's numbers. Those of payloads are cut off
// far above it, which changes no comparison between the two.
const (
	maxExponent    = 1_000_000
	payloadCutOff  = math.MaxInt32
	maxExponentLen = 10 // digits that cannot overflow an int64
)

// decimal is the exact value of a JSON number, without converting it: ±0.DDD × 10^exp,
// where DDD is whole followed by fraction, without zeros at its beginning or its end.
// Zero has no digits.
type decimal struct {
	whole, fraction []byte
	exp             int64
	negative        bool
}

// parseDecimal reads a valid JSON number and keeps slices of it.
func parseDecimal(literal []byte) decimal {
	var d decimal
	rest, negative := bytes.CutPrefix(literal, []byte("-"))
	if i := bytes.IndexAny(rest, "eE"); i >= 0 {
		d.exp = parseExponent(rest[i+1:])
		rest = rest[:i]
	}
	d.whole, d.fraction, _ = bytes.Cut(rest, []byte("."))

	d.whole = bytes.TrimLeft(d.whole, "0")
	d.exp += int64(len(d.whole))
	if len(d.whole) == 0 {
		digits := bytes.TrimLeft(d.fraction, "0")
		d.exp -= int64(len(d.fraction) - len(digits))
		d.fraction = digits
	}
	d.fraction = bytes.TrimRight(d.fraction, "0")
	if len(d.fraction) == 0 {
		d.whole = bytes.TrimRight(d.whole, "0")
	}
	if d.digits() == 0 {
		return decimal{}
	}
	d.negative = negative
	return d
}

func parseExponent(literal []byte) int64 {
	digits := bytes.TrimLeft(literal, "+-")
	digits = bytes.TrimLeft(digits, "0")
	exp := int64(payloadCutOff)
	if len(digits) < maxExponentLen {
		exp = 0
		for _, c := range digits {
			exp = exp*10 + int64(c-'0')
		}
	}
	if literal[0] == '-' {
		return -exp
	}
	return exp
}

func (d *decimal) digits() int { return len(d.whole) + len(d.fraction) }

// digit returns '0' beyond the last.
func (d *decimal) digit(i int) byte {
	if i < len(d.whole) {
		return d.whole[i]
	}
	if i -= len(d.whole); i < len(d.fraction) {
		return d.fraction[i]
	}
	return '0'
}

// compare returns -1, 0 or +1 as d is less than, equal to or greater than o.
func (d *decimal) compare(o *decimal) int {
	sign := d.sign()
	if c := cmp.Compare(sign, o.sign()); c != 0 || sign == 0 {
		return c
	}
	if c := cmp.Compare(d.exp, o.exp); c != 0 {
		return c * sign
	}
	for i := range max(d.digits(), o.digits()) {
		if c := cmp.Compare(d.digit(i), o.digit(i)); c != 0 {
			return c * sign
		}
	}
	return 0
}

func (d *decimal) sign() int {
	switch {
	case d.digits() == 0:
		return 0
	case d.negative:
		return -1
	default:
		return 1
	}
}
