package holdfast

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/internal/errs"
)

// tlsFiles are what a URL says of TLS besides its scheme.
type tlsFiles struct{ ca, cert, key, serverName string }

// takeTLS takes them off the query.
func takeTLS(q url.Values) tlsFiles {
	return tlsFiles{take(q, "tls_ca_file"), take(q, "tls_cert_file"), take(q, "tls_key_file"), take(q, "tls_server_name")}
}

// dialer is how go-redis has connections made.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// secure has connections made as cfg, which go-redis made of the scheme (nil: without
// TLS), and the files say. many: of several servers, each with a name of its own.
// go-redis' own dialer doesn't heed the context while it shakes hands.
func (f tlsFiles) secure(cfg *tls.Config, many bool, d *dialer) error {
	if cfg == nil && f == (tlsFiles{}) {
		return nil
	}
	if cfg == nil {
		return errs.Invalid("Redis URL has tls_ parameters, but a scheme without TLS: write rediss://, rediss+sentinel:// or rediss+cluster://")
	}
	if err := f.apply(cfg, many); err != nil {
		return err
	}
	*d = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return connect(ctx, cfg, network, addr)
	}
	return nil
}

// keepAlive is what go-redis has its connections do.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// connect makes one connection. go-redis bounds ctx by its DialTimeout. Its errors
// say that nothing has been sent.
func connect(ctx context.Context, cfg *tls.Config, network, addr string) (net.Conn, error) {
	plain, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn, err := shake(ctx, cfg, plain, addr)
	if err != nil {
		_ = plain.Close() // err is the reason
		if errors.Is(err, context.DeadlineExceeded) {
			err = os.ErrDeadlineExceeded // no context of the caller's
		}
		return nil, &net.OpError{Op: "dial", Net: network, Addr: plain.RemoteAddr(), Err: fmt.Errorf("TLS handshake: %w", err)}
	}
	return conn, nil
}

// shake begins TLS on a connection, with the name that cfg says, else the host's.
func shake(ctx context.Context, cfg *tls.Config, plain net.Conn, addr string) (net.Conn, error) {
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	conn := tls.Client(plain, cfg)
	return conn, conn.HandshakeContext(ctx)
}

// apply puts them into a configuration.
func (f tlsFiles) apply(cfg *tls.Config, many bool) error {
	if many {
		cfg.ServerName = "" // go-redis would ask all of them for the name of the first
	}
	if f.serverName != "" {
		cfg.ServerName = f.serverName
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return errs.Invalid("tls_ca_file can't be read: %v", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return errs.Invalid("tls_ca_file %q has no certificate in PEM form", f.ca)
		}
	}
	switch {
	case f.cert == "" && f.key == "":
		return nil
	case f.cert == "" || f.key == "":
		return errs.Invalid("tls_cert_file and tls_key_file belong together: give both or none")
	}
	if _, err := f.pair(); err != nil {
		return err
	}
	// Read anew for every connection: certificates are short-lived in many places.
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.pair() }
	return nil
}

func (f tlsFiles) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, errs.Invalid("tls_cert_file %q and tls_key_file %q make no pair: %v", f.cert, f.key, err)
	}
	return &pair, nil
}
