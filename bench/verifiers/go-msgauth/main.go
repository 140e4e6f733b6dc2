// Verifies messages with go-msgauth: prints a line for each signature, with file, domain, algorithm and result.
//
// Usage: go-msgauth RECORDS FILE...; RECORDS is what `stentor dkim show` prints.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/emersion/go-msgauth/dkim"
)

var (
	quoted    = regexp.MustCompile(`"([^"]*)"`)
	signature = regexp.MustCompile(`(?im)^dkim-signature:(.*\r?\n(?:[ \t].*\r?\n)*)`)
	algorithm = regexp.MustCompile(`(?:^|;)\s*a\s*=\s*([^;\s]+)`)
)

// readRecords returns the text of each record by its name.
func readRecords(path string) (map[string]string, error) {
	zone, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	records := map[string]string{}
	for _, line := range strings.Split(string(zone), "\n") {
		name, value, isRecord := strings.Cut(line, ". IN TXT ")
		if !isRecord {
			continue
		}
		for _, part := range quoted.FindAllStringSubmatch(value, -1) {
			records[name] += part[1]
		}
	}
	return records, nil
}

// algorithms returns the `a=` of each signature, in the order of the header.
func algorithms(message []byte) []string {
	header, _, _ := bytes.Cut(message, []byte("\r\n\r\n"))
	var found []string
	for _, field := range signature.FindAllSubmatch(append(header, "\r\n"...), -1) {
		tag := algorithm.FindSubmatch(field[1])
		if tag == nil {
			tag = [][]byte{nil, []byte("unknown")}
		}
		found = append(found, string(tag[1]))
	}
	return found
}

func verify(path string, options *dkim.VerifyOptions) error {
	message, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	verifications, err := dkim.VerifyWithOptions(bytes.NewReader(message), options)
	if err != nil {
		fmt.Printf("%s - - %v\n", path, err)
		return nil
	}
	known := algorithms(message)
	if len(known) != len(verifications) {
		return fmt.Errorf("%s: %d signatures, but %d results", path, len(known), len(verifications))
	}
	for n, one := range verifications {
		result := "pass"
		if one.Err != nil {
			result = one.Err.Error()
		}
		fmt.Printf("%s %s %s %s\n", path, one.Domain, known[n], result)
	}
	return nil
}

func run(arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("usage: go-msgauth RECORDS FILE...")
	}
	records, err := readRecords(arguments[0])
	if err != nil {
		return err
	}
	lookUp := func(name string) ([]string, error) {
		if text, exists := records[strings.TrimSuffix(strings.ToLower(name), ".")]; exists {
			return []string{text}, nil
		}
		return nil, nil
	}
	for _, path := range arguments[1:] {
		if err := verify(path, &dkim.VerifyOptions{LookupTXT: lookUp}); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
