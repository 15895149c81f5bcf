package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Login says where and how a client connects: with TLS if there is an Authority. It and Certificate are PEM files.
type Login struct {
	Address           string
	Mechanism         string
	User              string
	Password          string
	IsDelegationToken bool
	Token             string
	Authority         string
	Certificate       string
}

// logins tries each login: "in" if the client can connect, otherwise its error.
func logins(ctx context.Context, order Order) (any, error) {
	found := []string{}
	for _, login := range order.Logins {
		outcome := "in"
		if err := tryLogin(ctx, login); err != nil {
			outcome = err.Error()
		}
		found = append(found, outcome)
	}
	return found, nil
}

func optionsOf(login Login) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(login.Address)}
	if mechanism := mechanismOf(login); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	if login.Authority == "" {
		return options, nil
	}
	authority, err := os.ReadFile(login.Authority)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s has no certificate", login.Authority)
	}
	config := &tls.Config{RootCAs: trusted}
	if login.Certificate != "" {
		own, err := tls.LoadX509KeyPair(login.Certificate, login.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return append(options, kgo.DialTLSConfig(config)), nil
}

func tryLogin(ctx context.Context, login Login) error {
	options, err := optionsOf(login)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(options, kgo.RequestRetries(0))...)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx)
}

func mechanismOf(login Login) sasl.Mechanism {
	auth := scram.Auth{User: login.User, Pass: login.Password, IsToken: login.IsDelegationToken}
	switch login.Mechanism {
	case "PLAIN":
		return plain.Auth{User: login.User, Pass: login.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return auth.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return auth.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: login.Token}.AsMechanism()
	}
	return nil
}
