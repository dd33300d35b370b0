package gorm_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/outhook/webhook"
	"github.com/outhook/webhook/internal/pgtest"
	"github.com/outhook/webhook/store/postgres"
)

// GORM wraps the transaction when it keeps prepared statements, and nests one in
// another by savepoints.
func TestAnEventSharesTheFateOfAGORMTransaction(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]gorm.Config{"plain": {}, "prepared statements": {PrepareStmt: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := gorm.Open(gormpostgres.Open(pgtest.New(t)), &config)
			require.NoError(t, err)
			pool, err := db.DB()
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, pool.Close()) })
			store := postgres.NewSQL(pool)
			require.NoError(t, store.Migrate(t.Context()))
			hooks, err := webhook.New(store, webhook.Config{Secrets: webhook.NewKeyring(webhook.NewKey("test"))})
			require.NoError(t, err)
			t.Cleanup(hooks.Close)

			enqueue := func(tx *gorm.DB) uuid.UUID {
				raw, err := sqlTx(tx)
				require.NoError(t, err)
				res, err := hooks.Enqueue(t.Context(), raw, webhook.Event{Tenant: "acme", Type: "a", Payload: []byte(`{}`)})
				require.NoError(t, err)
				return res.EventID
			}
			var kept, undone, rolledBack uuid.UUID
			require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
				kept = enqueue(tx)
				_ = tx.Transaction(func(inner *gorm.DB) error {
					undone = enqueue(inner)
					return gorm.ErrInvalidTransaction
				})
				return nil
			}))
			require.ErrorIs(t, db.Transaction(func(tx *gorm.DB) error {
				rolledBack = enqueue(tx)
				return gorm.ErrInvalidTransaction
			}), gorm.ErrInvalidTransaction)

			_, err = store.GetEvent(t.Context(), webhook.AllTenants(), kept)
			require.NoError(t, err)
			for _, id := range []uuid.UUID{undone, rolledBack} {
				_, err = store.GetEvent(t.Context(), webhook.AllTenants(), id)
				assert.ErrorIs(t, err, webhook.ErrNotFound)
			}

			_, err = sqlTx(db)
			assert.ErrorContains(t, err, "not in a transaction")
		})
	}
}
