package postgres

import (
	"database/sql/driver"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// pgxEncoder hands values to pgx in types that it sends in binary where the mode
// has that.
//
// An array is handed over as a type that gives out pointers to its elements, which
// say what they are. The elements of a plain slice cost pgx up to three allocations
// each, and results go to the database fifteen arrays at a time. Arrays of text stay
// plain: a host's transaction that does not ask for the types of parameters can send
// them, which the key of an event needs.
type pgxEncoder struct{}

func (pgxEncoder) id(u uuid.UUID) any { return uuidParam(u) }

func (pgxEncoder) uuids(v []uuid.UUID) any { return uuidArray(present(v)) }
func (pgxEncoder) texts(v []string) any    { return present(v) }
func (pgxEncoder) bytes(v [][]byte) any    { return bytesArray(present(v)) }
func (pgxEncoder) int64s(v []int64) any    { return int64Array(present(v)) }
func (pgxEncoder) int16s(v []int16) any    { return present(v) }
func (pgxEncoder) bools(v []bool) any      { return present(v) }
func (pgxEncoder) times(v []time.Time) any { return timeArray(present(v)) }

// present makes no elements an empty array, which pgx would send as NULL.
func present[E any](v []E) []E {
	if v == nil {
		return []E{}
	}
	return v
}

// uuidParam is an id that pgx sends as the bytes that it is, and as text in a mode that
// does not ask for the types of parameters. Of a [uuid.UUID], which is a driver.Valuer, it
// makes text in any mode, and reads that again.
type uuidParam uuid.UUID

func (p uuidParam) UUIDValue() (pgtype.UUID, error) { return pgtype.UUID{Bytes: p, Valid: true}, nil }
func (p uuidParam) Value() (driver.Value, error)    { return uuid.UUID(p).String(), nil }

type uuidArray []uuid.UUID

func (a uuidArray) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a uuidArray) Index(i int) any                     { return (*uuidParam)(&a[i]) }
func (a uuidArray) IndexType() any                      { return new(uuidParam) }

type bytesArray [][]byte

func (a bytesArray) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a bytesArray) Index(i int) any                     { return (*bytesElement)(&a[i]) }
func (a bytesArray) IndexType() any                      { return new(bytesElement) }

type bytesElement []byte

func (e *bytesElement) BytesValue() ([]byte, error) { return *e, nil }

type int64Array []int64

func (a int64Array) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a int64Array) Index(i int) any                     { return (*int64Element)(&a[i]) }
func (a int64Array) IndexType() any                      { return new(int64Element) }

type int64Element int64

func (e *int64Element) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*e), Valid: true}, nil
}

type timeArray []time.Time

func (a timeArray) Dimensions() []pgtype.ArrayDimension { return dimensions(len(a)) }
func (a timeArray) Index(i int) any                     { return (*timeElement)(&a[i]) }
func (a timeArray) IndexType() any                      { return new(timeElement) }

type timeElement time.Time

func (e *timeElement) TimestamptzValue() (pgtype.Timestamptz, error) {
	return pgtype.Timestamptz{Time: time.Time(*e), Valid: true}, nil
}

func dimensions(n int) []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(n), LowerBound: 1}}
}
