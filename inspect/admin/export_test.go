package admin

// Routes returns the method and path of everything that the page serves.
func (p *Page) Routes() []string { return p.routes }

// ForgetRefusal lets the audit record the next refusal, however soon it comes.
func (p *Page) ForgetRefusal() { p.refused.Store(0) }

// ActionOf returns what Authorize is asked for a path.
func ActionOf(path string) string {
	for _, a := range actions {
		if path == "/do/"+a.name {
			return a.may
		}
	}
	return View
}
