// Package admin serves an admin page for locks and waiting tasks: what holds each key and for how long, which tasks
// wait for it and why, what happened in the last hour, the workers and lock servers, archived tasks, and past
// depositions.
//
//	page, err := admin.New(admin.Options{Tasks: client, Inspector: inspector, Prefix: "/locks"})
//	...
//	mux.Handle("/locks/", page)
//	server.RegisterOnShutdown(page.Close)
//
// The page is HTML that the server renders. It can be read without JavaScript; its own small script updates it while it
// is open. It needs nothing from other hosts and no build step.
//
// # Access
//
// The page does not authenticate anyone: put it behind what protects your other internal pages, or set Authorize. It
// changes nothing unless Actions is set. It can then wake, reorder, drop, cancel and replay tasks, and take keys away from
// holders. A form is accepted only from the page itself: the browser must say that it comes from the same origin, and
// the form must have a token that belongs to the browser's cookie.
//
// A request to a loopback address is served only if it asks for a loopback name, so that no foreign site can reach the
// page through a name of its own that resolves to 127.0.0.1. Behind a proxy on the same machine, set Hosts to the
// public name, and have the proxy pass on the headers Host, Origin and Sec-Fetch-Site.
//
// Keys are shown as they are, unless ShowKey is set. Payloads of tasks are never shown.
//
// # Links
//
// An alert can link to /key?key=order%3A1042 below the Prefix, or to /task?queue=default&task=ID.
//
// # Load
//
// All open pages share the same reads from Redis: about two per second while any page is open, fewer when reads are
// slow, and none when no page is open.
package admin
