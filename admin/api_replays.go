package admin

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/outhook/webhook"
)

// Replay jobs and their requests are in the library's own shapes, which have the words
// of the API.
func replayRoutes() []route {
	one := "/api/replays/{replay_id}"
	return []route{
		{method: http.MethodGet, pattern: "/api/replays", serve: listReplays, op: &operation{
			id: "listReplays", tag: "replays", summary: "Replay jobs, newest first.",
			params: []param{tenantParam, {name: "endpoint_id", kind: idParam, doc: "Only to this endpoint."}, cursorParam, limitParam},
			status: 200, response: listShape[webhook.ReplayJob]{},
		}},
		{method: http.MethodPost, pattern: "/api/replays", mutates: true, limited: true, serve: createReplay, op: &operation{
			id: "createReplay", tag: "replays", summary: "Send many deliveries of an endpoint again.",
			creates: true, request: webhook.ReplayJobRequest{}, status: 201, response: webhook.ReplayJob{}, problems: []int{404, 409},
		}},
		{method: http.MethodPost, pattern: "/api/replays/dry-run", limited: true, serve: estimateReplay, op: &operation{
			id: "estimateReplay", tag: "replays", summary: "Count what a replay job would send, and change nothing.",
			request: webhook.ReplayJobRequest{}, status: 200, response: webhook.ReplayEstimate{}, problems: []int{404, 409},
		}},
		{method: http.MethodGet, pattern: one, serve: getReplay, op: &operation{
			id: "getReplay", tag: "replays", summary: "A replay job and how far it has come.", status: 200, response: webhook.ReplayJob{},
		}},
		{method: http.MethodPost, pattern: one + "/cancel", mutates: true, serve: cancelReplay, op: &operation{
			id: "cancelReplay", tag: "replays", summary: "End a replay job. What it has begun stays.",
			status: 200, response: webhook.ReplayJob{}, problems: []int{409},
		}},
	}
}

func listReplays(v *visit) error {
	p, err := v.page()
	if err != nil {
		return err
	}
	endpoint, err := v.queryID("endpoint_id")
	if err != nil {
		return err
	}
	list, err := v.within().Replays(v.ctx(), webhook.ListReplayJobsParams{EndpointID: endpoint, Before: p.from, Limit: p.limit + 1})
	if err != nil {
		return err
	}
	return writeList(v, p, list,
		func(j webhook.ReplayJob) uuid.UUID { return j.ID },
		func(j webhook.ReplayJob) webhook.ReplayJob { return j })
}

func createReplay(v *visit) error {
	var r webhook.ReplayJobRequest
	if err := v.readJSON(&r); err != nil {
		return err
	}
	r.IdempotencyKey = v.r.Header.Get("Idempotency-Key")
	job, err := v.createReplay(r)
	if err != nil {
		return err
	}
	return v.writeJSON(v.created("api/replays/", job.ID, job.Duplicate), job)
}

func estimateReplay(v *visit) error {
	var r webhook.ReplayJobRequest
	if err := v.readJSON(&r); err != nil {
		return err
	}
	estimate, err := v.view.EstimateReplay(v.ctx(), r)
	if err != nil {
		return err
	}
	return v.writeJSON(http.StatusOK, estimate)
}

func getReplay(v *visit) error {
	return v.withReplay(func(id uuid.UUID) (webhook.ReplayJob, error) { return v.view.Replay(v.ctx(), id) })
}

func cancelReplay(v *visit) error { return v.withReplay(v.cancelReplay) }

// withReplay answers with the job that act returns for the path's id.
func (v *visit) withReplay(act func(uuid.UUID) (webhook.ReplayJob, error)) error {
	id, err := v.id("replay_id")
	if err != nil {
		return err
	}
	job, err := act(id)
	if err != nil {
		return err
	}
	return v.writeJSON(http.StatusOK, job)
}
