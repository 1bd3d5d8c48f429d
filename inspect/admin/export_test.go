package admin

import "github.com/railtoken/railtoken/inspect"

// Routes returns the method and path of everything that the page serves.
func (p *Page) Routes() []string { return p.routes }

// ForgetRefusal lets the audit record the next refusal, however soon it comes.
func (p *Page) ForgetRefusal() { p.refused.Store(0) }

// ActionOf returns what Authorize is asked for a path.
func ActionOf(path string) inspect.Action {
	for _, a := range actions {
		if path == "/do/"+a.name {
			return a.action
		}
	}
	return inspect.ActionView
}
