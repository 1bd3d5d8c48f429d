package worker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// authority is a certificate that has signed itself and, for both sides of a connection, redis.internal's.
var authority = sync.OnceValue(func() map[string][]byte {
	sign := func(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
		if err != nil {
			panic(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		return key
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"redis.internal"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	caKey, key := newKey(), newKey()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return map[string][]byte{
		"ca.pem": sign(ca, ca, caKey, caKey), "cert.pem": sign(leaf, ca, key, caKey), "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}
})

// withTLSFiles writes the files of authority, and returns the value with the folder in place of TLS.
func withTLSFiles(t *testing.T, value string) string {
	t.Helper()
	if !strings.Contains(value, "TLS/") {
		return value
	}
	dir := t.TempDir()
	for name, text := range authority() {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Replace(value, "TLS", dir, 1)
}

func TestVariablesReachAServerWithAPrivateAuthority(t *testing.T) {
	pair, err := tls.X509KeyPair(authority()["cert.pem"], authority()["key.pem"])
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority()["ca.pem"])
	server := miniredis.NewMiniRedis()
	if err := server.StartTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	server.RequireAuth(" from a file ")

	vars := map[string]string{
		"ADDR": server.Addr(), "PASSWORD_FILE": "testdata/password", "TLS_CA_FILE": withTLSFiles(t, "TLS/ca.pem"),
		"TLS_CERT_FILE": withTLSFiles(t, "TLS/cert.pem"), "TLS_KEY_FILE": withTLSFiles(t, "TLS/key.pem"), "TLS_SERVER_NAME": "redis.internal",
	}
	ping := func(t *testing.T, without ...string) error {
		t.Helper()
		set := map[string]string{}
		for name, value := range vars {
			set["RAILTOKEN_REDIS_"+name] = value
		}
		for _, name := range without {
			delete(set, "RAILTOKEN_REDIS_"+name)
		}
		setEnv(t, set)
		cfg, err := FromEnv()
		if err != nil {
			t.Fatal(err)
		}
		client := cfg.Redis.Connect()
		defer client.Close()
		return client.Ping(t.Context()).Err()
	}
	if err := ping(t); err != nil {
		t.Errorf("with all variables: %v", err)
	}
	for says, without := range map[string][]string{
		"unknown authority": {"TLS_CA_FILE"}, "certificate": {"TLS_CERT_FILE", "TLS_KEY_FILE"}, "IP SANs": {"TLS_SERVER_NAME"}, "NOAUTH": {"PASSWORD_FILE"},
	} {
		if err := ping(t, without...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("without %q: %v; want %q", without, err, says)
		}
	}
}

func TestCertificateIsReadForEachConnection(t *testing.T) {
	cert := withTLSFiles(t, "TLS/cert.pem")
	key := strings.TrimSuffix(cert, "cert.pem") + "key.pem"
	setEnv(t, map[string]string{"RAILTOKEN_REDIS_ADDR": "a:1", "RAILTOKEN_REDIS_TLS_CERT_FILE": cert, "RAILTOKEN_REDIS_TLS_KEY_FILE": key})
	cfg, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.Redis.TLSConfig.GetClientCertificate(nil); err == nil {
		t.Error("a certificate that was removed is still sent")
	}
}

func TestFaultyFilesAreRefusedTogether(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	setEnv(t, map[string]string{
		"RAILTOKEN_REDIS_ADDR": "a:1", "RAILTOKEN_REDIS_PASSWORD": "hunter2", "RAILTOKEN_REDIS_PASSWORD_FILE": "testdata/password",
		"RAILTOKEN_REDIS_SENTINEL_PASSWORD_FILE": empty, "RAILTOKEN_REDIS_TLS": "false", "RAILTOKEN_REDIS_TLS_CA_FILE": "testdata/password",
		"RAILTOKEN_REDIS_TLS_CERT_FILE": "c", "RAILTOKEN_LOCK_REDIS_ADDR": "b:1", "RAILTOKEN_LOCK_REDIS_PASSWORD_FILE": "no/such/file",
		"RAILTOKEN_LOCK_REDIS_TLS_CERT_FILE": "testdata/password", "RAILTOKEN_LOCK_REDIS_TLS_KEY_FILE": "testdata/password",
	})
	_, err := FromEnv()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"RAILTOKEN_REDIS_PASSWORD and RAILTOKEN_REDIS_PASSWORD_FILE are both set", "RAILTOKEN_REDIS_SENTINEL_PASSWORD_FILE is \"" + empty + "\": the file is empty",
		`RAILTOKEN_REDIS_TLS is "false": set it to true`, `RAILTOKEN_REDIS_TLS_CA_FILE is "testdata/password": the file has no certificate`,
		"RAILTOKEN_REDIS_TLS_CERT_FILE and RAILTOKEN_REDIS_TLS_KEY_FILE belong together", `RAILTOKEN_LOCK_REDIS_PASSWORD_FILE is "no/such/file": name a file`,
		`RAILTOKEN_LOCK_REDIS_TLS_CERT_FILE is "testdata/password": give a certificate`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "from a file") {
		t.Errorf("the error has a password:\n%v", err)
	}
}
