package security

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority signs certificates, and has its own in a file.
type authority struct {
	dir, file string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{dir: t.TempDir()}
	a.file = filepath.Join(a.dir, "ca.pem")
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	der, a.key = sign(t, template, nil)
	var err error
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	write(t, a.file, "CERTIFICATE", der)
	return a
}

// certFiles are the files of a certificate and its key.
type certFiles struct{ cert, key string }

// issue makes a certificate for a name and 127.0.0.1, or for the name alone, that
// ends at a given time.
func (a *authority) issue(t *testing.T, name string, local bool, end time.Time) certFiles {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if local {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, key := sign(t, template, a)
	files := certFiles{filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")}
	write(t, files.cert, "CERTIFICATE", der)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	write(t, files.key, "EC PRIVATE KEY", keyDER)
	return files
}

// sign signs a certificate; without an authority, by itself.
func sign(t *testing.T, template *x509.Certificate, by *authority) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template.NotBefore = time.Now().Add(-24 * time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = tomorrow()
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	return der, key
}

func write(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func tomorrow() time.Time  { return time.Now().Add(24 * time.Hour) }
func yesterday() time.Time { return time.Now().Add(-time.Hour) }
