// A Go client for the tests: franz-go, told on standard input what to do, answering on standard output, both in JSON.
//
//	send      Order with Messages    -> nothing, when all are acknowledged
//	receive   Order with Count       -> the messages, each partition's in the order of its offsets
//	admin     Order                  -> Findings: a topic made, described, changed, grown, cut and removed
//	logins    Order with Logins      -> for each login "in", or the error of the client
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 20 * time.Second

type Header struct {
	Name  string
	Value []byte
}

type Message struct {
	Partition int32
	Key       []byte
	Value     []byte
	Headers   []Header
	Timestamp int64
}

type Order struct {
	Bootstrap  string
	Topic      string
	Codec      string
	Idempotent bool
	Acks       int
	Partitions int32
	Count      int
	Messages   []Message
	Logins     []Login
	Login      *Login // how to enter a broker with security
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var acks = map[int]kgo.Acks{-1: kgo.AllISRAcks(), 0: kgo.NoAck(), 1: kgo.LeaderAck()}

// enter has the options by which a client finds the broker and logs in.
func enter(order Order) []kgo.Opt {
	if order.Login == nil {
		return []kgo.Opt{kgo.SeedBrokers(order.Bootstrap)}
	}
	options, err := optionsOf(*order.Login)
	if err != nil {
		panic(err)
	}
	return options
}

func send(ctx context.Context, order Order) (any, error) {
	options := append(enter(order),
		kgo.ProducerBatchCompression(codecs[order.Codec]),
		kgo.RequiredAcks(acks[order.Acks]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(10_000_000),
		kgo.AllowAutoTopicCreation(),
	)
	if !order.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(order.Messages))
	for _, message := range order.Messages {
		record := &kgo.Record{
			Topic: order.Topic, Partition: message.Partition, Key: message.Key, Value: message.Value,
			Timestamp: time.UnixMilli(message.Timestamp),
		}
		for _, header := range message.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		records = append(records, record)
	}
	return nil, client.ProduceSync(ctx, records...).FirstErr()
}

func receive(ctx context.Context, order Order) (any, error) {
	offsets := map[int32]kgo.Offset{}
	for partition := int32(0); partition < order.Partitions; partition++ {
		offsets[partition] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(append(enter(order),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{order.Topic: offsets}),
		kgo.FetchMaxWait(50*time.Millisecond),
	)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []Message{}
	for len(found) < order.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			message := Message{
				Partition: record.Partition, Key: record.Key, Value: record.Value, Headers: []Header{},
				Timestamp: record.Timestamp.UnixMilli(),
			}
			for _, header := range record.Headers {
				message.Headers = append(message.Headers, Header{Name: header.Key, Value: header.Value})
			}
			found = append(found, message)
		})
	}
	return found, nil
}

type Findings struct {
	Created      int    // partitions
	Retention    string // as it was created
	Altered      string // retention after it was changed
	Grown        int    // partitions
	LowWater     int64  // of partition 0 after one record of two was deleted
	HighWater    int64
	CreatedAgain string // the error
	Left         bool   // whether it is still listed after it was deleted
}

func admin(ctx context.Context, order Order) (any, error) {
	client, err := kgo.NewClient(append(enter(order), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	desk := kadm.NewClient(client)
	var findings Findings
	steps := []func() error{
		func() error { return create(ctx, desk, order, &findings) },
		func() error { return alter(ctx, desk, order, &findings) },
		func() error {
			two := []*kgo.Record{{Topic: order.Topic, Value: []byte("a")}, {Topic: order.Topic, Value: []byte("b")}}
			return client.ProduceSync(ctx, two...).FirstErr()
		},
		func() error { return cut(ctx, desk, order, &findings) },
		func() error { return remove(ctx, desk, order, &findings) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return findings, nil
}

func create(ctx context.Context, desk *kadm.Client, order Order, findings *Findings) error {
	retention := "60000"
	made, err := desk.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &retention}, order.Topic)
	if err != nil {
		return err
	}
	findings.Created = int(made.NumPartitions)
	if again, err := desk.CreateTopic(ctx, 2, 1, nil, order.Topic); err != nil {
		findings.CreatedAgain = again.Err.Error()
	}
	findings.Retention, err = retentionOf(ctx, desk, order.Topic)
	return err
}

func alter(ctx context.Context, desk *kadm.Client, order Order, findings *Findings) error {
	longer := "70000"
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &longer}}
	altered, err := desk.AlterTopicConfigs(ctx, change, order.Topic)
	if err == nil {
		_, err = altered.On(order.Topic, func(each *kadm.AlterConfigsResponse) error { return each.Err })
	}
	if err != nil {
		return err
	}
	if findings.Altered, err = retentionOf(ctx, desk, order.Topic); err != nil {
		return err
	}
	grown, err := desk.CreatePartitions(ctx, 1, order.Topic)
	if err == nil {
		err = grown.Error()
	}
	if err != nil {
		return err
	}
	details, err := desk.ListTopics(ctx, order.Topic)
	findings.Grown = len(details[order.Topic].Partitions)
	return err
}

func retentionOf(ctx context.Context, desk *kadm.Client, topic string) (string, error) {
	resources, err := desk.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return "", err
	}
	described, err := resources.On(topic, nil)
	if err != nil {
		return "", err
	}
	for _, config := range described.Configs {
		if config.Key == "retention.ms" {
			return config.MaybeValue(), nil
		}
	}
	return "", fmt.Errorf("%s has no retention.ms", topic)
}

func cut(ctx context.Context, desk *kadm.Client, order Order, findings *Findings) error {
	upTo := kadm.Offsets{}
	upTo.Add(kadm.Offset{Topic: order.Topic, Partition: 0, At: 1})
	deleted, err := desk.DeleteRecords(ctx, upTo)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		return err
	}
	starts, err := desk.ListStartOffsets(ctx, order.Topic)
	if err != nil {
		return err
	}
	ends, err := desk.ListEndOffsets(ctx, order.Topic)
	low, _ := starts.Lookup(order.Topic, 0)
	high, _ := ends.Lookup(order.Topic, 0)
	findings.LowWater, findings.HighWater = low.Offset, high.Offset
	return err
}

func remove(ctx context.Context, desk *kadm.Client, order Order, findings *Findings) error {
	if _, err := desk.DeleteTopic(ctx, order.Topic); err != nil {
		return err
	}
	details, err := desk.ListTopics(ctx)
	findings.Left = details.Has(order.Topic)
	return err
}

func run() error {
	jobs := map[string]func(context.Context, Order) (any, error){
		"send": send, "receive": receive, "admin": admin, "logins": logins,
	}
	var order Order
	if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	result, err := jobs[os.Args[1]](ctx, order)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
