// Package browser tests the admin page in Chromium. It is a module of its own, so that users of the library do not need
// a browser driver.
package browser
