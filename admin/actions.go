package admin

import (
	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Everything that changes data is a method here, for the JSON API and the pages
// alike: it acts through the visit's view and hands out the audit record.

func (v *visit) createEndpoint(p webhook.EndpointParams) (webhook.Endpoint, error) {
	e, err := v.view.CreateEndpoint(v.ctx(), p)
	// Without a secret it was made by an earlier request with the same idempotency key.
	if err == nil && !e.Secret.IsZero() {
		v.audit(ActionEndpointCreate, e.Tenant, e.ID, nil, v.auditedEndpoint(e))
	}
	return e, err
}

func (v *visit) updateEndpoint(id uuid.UUID, u webhook.EndpointUpdate) (webhook.Endpoint, error) {
	return v.changeEndpoint(ActionEndpointUpdate, id, func() (webhook.Endpoint, error) {
		return v.view.UpdateEndpoint(v.ctx(), id, u)
	})
}

func (v *visit) pauseEndpoint(id uuid.UUID, reason string) (webhook.Endpoint, error) {
	return v.changeEndpoint(ActionEndpointPause, id, func() (webhook.Endpoint, error) {
		return v.view.PauseEndpoint(v.ctx(), id, reason)
	})
}

func (v *visit) resumeEndpoint(id uuid.UUID) (webhook.Endpoint, error) {
	return v.changeEndpoint(ActionEndpointResume, id, func() (webhook.Endpoint, error) {
		return v.view.ResumeEndpoint(v.ctx(), id)
	})
}

func (v *visit) disableEndpoint(id uuid.UUID, reason string) (webhook.Endpoint, error) {
	return v.changeEndpoint(ActionEndpointDisable, id, func() (webhook.Endpoint, error) {
		return v.view.DisableEndpoint(v.ctx(), id, reason)
	})
}

func (v *visit) enableEndpoint(id uuid.UUID) (webhook.Endpoint, error) {
	return v.changeEndpoint(ActionEndpointEnable, id, func() (webhook.Endpoint, error) {
		return v.view.EnableEndpoint(v.ctx(), id)
	})
}

// rotateSecret gives an endpoint a new secret. The endpoint that it returns shows it:
// once.
func (v *visit) rotateSecret(id uuid.UUID, o webhook.RotateOptions) (webhook.Endpoint, error) {
	return v.changeEndpoint(ActionEndpointRotateSecret, id, func() (webhook.Endpoint, error) {
		return v.view.RotateSecret(v.ctx(), id, o)
	})
}

// testEndpoint sends a test event, and tells of it whatever came back.
func (v *visit) testEndpoint(id uuid.UUID, eventType string) (webhook.Attempt, error) {
	e, err := v.view.Endpoint(v.ctx(), id)
	if err != nil {
		return webhook.Attempt{}, err
	}
	a, err := v.view.SendTest(v.ctx(), id, eventType)
	if err == nil {
		v.audit(ActionEndpointTest, e.Tenant, id, nil, nil)
	}
	return a, err
}

func (v *visit) deleteEndpoint(id uuid.UUID) error {
	before, err := v.view.Endpoint(v.ctx(), id)
	if err != nil {
		return err
	}
	if err := v.view.DeleteEndpoint(v.ctx(), id); err != nil {
		return err
	}
	v.audit(ActionEndpointDelete, before.Tenant, id, v.auditedEndpoint(before), nil)
	return nil
}

// changeEndpoint changes an endpoint and tells what it was before and is now.
func (v *visit) changeEndpoint(action Action, id uuid.UUID, change func() (webhook.Endpoint, error)) (webhook.Endpoint, error) {
	before, err := v.view.Endpoint(v.ctx(), id)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	after, err := change()
	if err != nil {
		return webhook.Endpoint{}, err
	}
	v.audit(action, after.Tenant, id, v.auditedEndpoint(before), v.auditedEndpoint(after))
	return after, nil
}

func (v *visit) retryDelivery(id uuid.UUID) (webhook.Delivery, error) {
	d, err := v.view.RetryDelivery(v.ctx(), id)
	if err == nil {
		v.audit(ActionDeliveryRetry, d.Tenant, id, nil, deliveryOf(d))
	}
	return d, err
}

func (v *visit) cancelDelivery(id uuid.UUID, reason string) (webhook.Delivery, error) {
	d, err := v.view.CancelDelivery(v.ctx(), id, reason)
	if err == nil {
		v.audit(ActionDeliveryCancel, d.Tenant, id, nil, deliveryOf(d))
	}
	return d, err
}

func (v *visit) replayEvent(event, endpoint uuid.UUID) (webhook.Delivery, error) {
	d, err := v.view.ReplayEvent(v.ctx(), event, endpoint)
	if err == nil {
		v.audit(ActionEventReplay, d.Tenant, event, nil, deliveryOf(d))
	}
	return d, err
}

func (v *visit) createReplay(r webhook.ReplayJobRequest) (webhook.ReplayJob, error) {
	job, err := v.view.CreateReplay(v.ctx(), r)
	if err == nil && !job.Duplicate {
		v.audit(ActionReplayCreate, job.Tenant, job.ID, nil, job)
	}
	return job, err
}

func (v *visit) cancelReplay(id uuid.UUID) (webhook.ReplayJob, error) {
	job, err := v.view.CancelReplay(v.ctx(), id)
	if err == nil {
		v.audit(ActionReplayCancel, job.Tenant, id, nil, job)
	}
	return job, err
}

func (v *visit) enqueueEvent(e webhook.Event) (webhook.EnqueueResult, error) {
	res, err := v.handler.enqueue(v.ctx(), e)
	if err == nil && !res.Duplicate {
		v.audit(ActionEventEnqueue, e.Tenant, res.EventID, nil, nil)
	}
	return res, err
}
