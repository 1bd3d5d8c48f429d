package worker

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

// secret returns the value of a variable, or the content of the file that the variable with _FILE names, without the line end at its
// end.
func (p *parser) secret(name, text, file string) Secret {
	file = strings.TrimSpace(file)
	switch {
	case file == "":
		return Secret(text)
	case text != "":
		p.errs = append(p.errs, fmt.Errorf("worker: %[1]s_%[2]s and %[1]s_%[2]s_FILE are both set: unset one of them", envPrefix, name))
		return Secret(text)
	}
	content := strings.TrimSuffix(strings.TrimSuffix(string(p.file(name+"_FILE", file)), "\n"), "\r")
	return Secret(content)
}

// file returns the content of a file, which must not be empty.
func (p *parser) file(name, file string) []byte {
	content, err := os.ReadFile(file)
	switch {
	case err != nil:
		p.fault(name, file, fmt.Sprintf("name a file that this program can read (%v)", err))
	case strings.TrimSpace(string(content)) == "":
		p.fault(name, file, "the file is empty")
	}
	return content
}

// tls returns the TLS configuration that the variables describe; nil if the connections are not encrypted, or with nothing but the
// system's certificates.
func (p *parser) tls(name string, e redisEnv) *tls.Config {
	ca, cert, key, server := strings.TrimSpace(e.TLSCaFile), strings.TrimSpace(e.TLSCertFile), strings.TrimSpace(e.TLSKeyFile), strings.TrimSpace(e.TLSServerName)
	if ca == "" && cert == "" && key == "" && server == "" {
		return nil
	}
	if text := strings.TrimSpace(e.TLS); text != "" && !p.bool(name, text) {
		p.fault(name, text, fmt.Sprintf("set it to true, or unset %[1]s_%[2]s_CA_FILE, %[1]s_%[2]s_CERT_FILE, %[1]s_%[2]s_KEY_FILE and %[1]s_%[2]s_SERVER_NAME",
			envPrefix, name))
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: server}
	if ca != "" {
		c.RootCAs = x509.NewCertPool()
		if content := p.file(name+"_CA_FILE", ca); len(content) > 0 && !c.RootCAs.AppendCertsFromPEM(content) {
			p.fault(name+"_CA_FILE", ca, "the file has no certificate in PEM format")
		}
	}
	switch {
	case (cert == "") != (key == ""):
		p.errs = append(p.errs, fmt.Errorf("worker: %[1]s_%[2]s_CERT_FILE and %[1]s_%[2]s_KEY_FILE belong together: set both", envPrefix, name))
	case cert != "":
		// Read for each connection: such files are replaced while the program runs, before the certificate ends.
		read := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
		if _, err := read(); err != nil {
			p.fault(name+"_CERT_FILE", cert, fmt.Sprintf("give a certificate and its key in PEM format (%v)", err))
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
	}
	return c
}
