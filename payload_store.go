package webhook

import (
	"context"
	"encoding/base32"
	"errors"
	"iter"
	"strings"

	"github.com/google/uuid"
)

// Defaults of payloads that are kept in a [PayloadStore] (docs/design.md §2).
const (
	// DefaultMaxStoredPayload is the default of [Config.MaxPayload] where there is a
	// PayloadStore: 16 MiB.
	DefaultMaxStoredPayload = 16 << 20

	// DefaultPayloadThreshold is the default of [Config.PayloadThreshold]: 256 KiB.
	DefaultPayloadThreshold = DefaultMaxPayload
)

// PayloadStore keeps large payloads outside of the database, which then holds only
// their size and hash: see [Config.PayloadStore]. Package store/payloadfs keeps them in
// files. All methods are safe for concurrent use, and return errors that hold neither
// payloads nor credentials.
//
// A payload is put before its event is written, since a reference without a payload
// would be worse than a payload without one. So a transaction that rolls back leaves its
// payload behind. A PayloadStore that also is a [PayloadLister] is looked through for
// these; of another one the host removes what is older than events are kept, for
// instance by a rule of its object storage.
type PayloadStore interface {
	// Put keeps a payload. When it returns nil, the payload is durable, and Get returns
	// it in every process. Keys are never used for another payload, but Put may be
	// repeated. It must not keep or change the slice.
	Put(ctx context.Context, key PayloadKey, payload []byte) error

	// Get returns a payload, which the caller does not change. One that is not there
	// gives ErrPayloadMissing, as errors.Is has it; any other error means that it may
	// be there, and that asking again later may help.
	Get(ctx context.Context, key PayloadKey) ([]byte, error)

	// Delete removes a payload. That there is none is no error.
	Delete(ctx context.Context, key PayloadKey) error
}

// PayloadLister is an optional part of a [PayloadStore]: with it, payloads are found and
// removed whose event was never committed.
type PayloadLister interface {
	// List yields the keys of all payloads that were put some time ago, in any order. A
	// payload that is put or removed meanwhile may be among them or not. It ends after
	// an error.
	List(ctx context.Context) iter.Seq2[PayloadKey, error]
}

// PayloadKey names a payload.
type PayloadKey struct {
	Tenant  string
	EventID uuid.UUID
}

// nameEncoding has no letters that differ in case alone, and no padding.
var nameEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// Folder is a name for the tenant that is safe as a part of a path or of an object's
// name: at most 207 bytes of lower-case letters, digits and hyphens, different for
// different tenants, also where case does not count. It begins with "t-", and with "x-"
// where the tenant is written in another way.
func (k PayloadKey) Folder() string {
	if plainName(k.Tenant) {
		return "t-" + k.Tenant
	}
	return "x-" + strings.ToLower(nameEncoding.EncodeToString([]byte(k.Tenant)))
}

// String is Folder, the day of the event's id, and the id, with slashes between them:
// "t-acme/2026-11-30/01a2…". It is safe as an object's name.
func (k PayloadKey) String() string { return k.Folder() + "/" + k.Day() + "/" + k.EventID.String() }

// Day is the day, in UTC, on which the event's id was made, as 2006-01-02.
func (k PayloadKey) Day() string { return madeAt(k.EventID).Format("2006-01-02") }

// ParsePayloadKey returns the key that String returned; ok is false for anything else.
func ParsePayloadKey(s string) (key PayloadKey, ok bool) {
	folder, rest, _ := strings.Cut(s, "/")
	_, id, _ := strings.Cut(rest, "/")
	var err error
	if key.EventID, err = uuid.Parse(id); err != nil {
		return PayloadKey{}, false
	}
	if name, plain := strings.CutPrefix(folder, "t-"); plain {
		key.Tenant = name
	} else if name, encoded := strings.CutPrefix(folder, "x-"); encoded {
		tenant, err := nameEncoding.DecodeString(strings.ToUpper(name))
		if err != nil {
			return PayloadKey{}, false
		}
		key.Tenant = string(tenant)
	}
	return key, key.String() == s
}

// maxPlainName is how long a tenant's name may be that stands for itself.
const maxPlainName = 100

func plainName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return len(s) > 0 && len(s) <= maxPlainName
}

// Errors of payloads that are kept in a [PayloadStore].
var (
	// ErrPayloadMissing says that a payload is not in the [PayloadStore], or that there
	// is none any more.
	ErrPayloadMissing = errors.New("webhook: the payload is missing in the payload store")

	// ErrPayloadUnreachable says that the [PayloadStore] gave another error, or that there
	// is none: the payload may well be there.
	ErrPayloadUnreachable = errors.New("webhook: the payload store does not answer")

	// ErrPayloadDamaged says that what the [PayloadStore] returned is not what was put:
	// its size or its hash is another.
	ErrPayloadDamaged = errors.New("webhook: the payload store has another payload than was put")
)

// The reasons of dead deliveries whose payload could not be read. They are dead only
// after a day of trying: until then their log shows attempts of the class internal, which
// do not count. A replay sends them once the payload is back.
const (
	ReasonPayloadMissing = "payload_missing"
	ReasonPayloadDamaged = "payload_damaged"
)

// ReasonFiltered is the reason of a cancelled delivery that the endpoint's filter left
// out only when it was to be sent: when the event was fanned out, its payload could not
// be read from the [PayloadStore].
const ReasonFiltered = "the endpoint's filter leaves the event out"
