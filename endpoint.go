package webhook

// EndpointState says whether an endpoint is being sent to.
type EndpointState string

// The states of an endpoint.
const (
	// EndpointActive is sent to.
	EndpointActive EndpointState = "active"
	// EndpointPaused keeps its deliveries pending and is sent nothing.
	EndpointPaused EndpointState = "paused"
	// EndpointDisabled is sent nothing, and its deliveries are cancelled.
	EndpointDisabled EndpointState = "disabled"
)
