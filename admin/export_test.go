package admin

// PageRoutes are the methods and patterns of the pages.
func (h *Handler) PageRoutes() []string {
	var list []string
	for _, rt := range h.routes {
		if rt.op == nil {
			list = append(list, rt.method+" "+rt.pattern)
		}
	}
	return list
}
