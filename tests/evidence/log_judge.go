// Judges logs of Moot with Go's own packages for checkpoints and trees: a case a line in, a verdict a line out.
package main

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"judge/note"
	"judge/tlog"
)

type judged struct {
	LogKey     string
	WitnessKey string
	Note       []byte
	Index      int64
	Entry      []byte
	Proof      [][]byte
	OldSize    int64
	OldRoot    []byte
	Growth     [][]byte
	Tiles      string
}

// cosigner verifies cosignature/v1: the time, and a signature over it and the text.
type cosigner struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

func (c cosigner) Name() string    { return c.name }
func (c cosigner) KeyHash() uint32 { return c.hash }
func (c cosigner) Verify(text, sig []byte) bool {
	if len(sig) != 72 {
		return false
	}
	head := fmt.Sprintf("cosignature/v1\ntime %d\n", binary.BigEndian.Uint64(sig))
	return ed25519.Verify(c.key, append([]byte(head), text...), sig[8:])
}

func newCosigner(vkey string) (note.Verifier, error) {
	parts := strings.SplitN(vkey, "+", 3)
	if len(parts) != 3 {
		return nil, errors.New("no key")
	}
	raw, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(raw) != 33 || raw[0] != 4 {
		return nil, errors.New("no cosigner's key")
	}
	sum := sha256.Sum256(append([]byte(parts[0]+"\n"), raw...))
	return cosigner{parts[0], binary.BigEndian.Uint32(sum[:]), raw[1:]}, nil
}

// files reads the tiles that were published.
type files struct{ folder string }

func (files) Height() int                      { return 8 }
func (files) SaveTiles([]tlog.Tile, [][]byte)  {}
func (f files) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var found [][]byte
	for _, tile := range tiles {
		path := "tile/" + strings.TrimPrefix(tile.Path(), "tile/8/")
		raw, err := os.ReadFile(filepath.Join(f.folder, path))
		if err != nil {
			return nil, err
		}
		found = append(found, raw)
	}
	return found, nil
}

func hashes(raw [][]byte) ([]tlog.Hash, error) {
	var found []tlog.Hash
	for _, each := range raw {
		if len(each) != tlog.HashSize {
			return nil, errors.New("no hash")
		}
		found = append(found, tlog.Hash(each))
	}
	return found, nil
}

func judge(c judged) error {
	log, err := note.NewVerifier(c.LogKey)
	if err != nil {
		return err
	}
	known := []note.Verifier{log}
	if c.WitnessKey != "" {
		witness, err := newCosigner(c.WitnessKey)
		if err != nil {
			return err
		}
		known = append(known, witness)
	}
	opened, err := note.Open(c.Note, note.VerifierList(known...))
	if err != nil {
		return err
	}
	if len(opened.Sigs) != len(known) || len(opened.UnverifiedSigs) != 0 {
		return errors.New("not all signed")
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != log.Name() {
		return errors.New("no checkpoint of this log")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return err
	}
	root, err := tlog.ParseHash(lines[2])
	if err != nil {
		return err
	}
	proof, err := hashes(c.Proof)
	if err != nil {
		return err
	}
	if err := tlog.CheckRecord(proof, size, root, c.Index, tlog.RecordHash(c.Entry)); err != nil {
		return err
	}
	if c.OldSize > 0 {
		growth, err := hashes(c.Growth)
		if err != nil {
			return err
		}
		old, err := hashes([][]byte{c.OldRoot})
		if err != nil {
			return err
		}
		if err := tlog.CheckTree(growth, size, root, c.OldSize, old[0]); err != nil {
			return err
		}
	}
	if c.Tiles != "" {
		reader := tlog.TileHashReader(tlog.Tree{N: size, Hash: root}, files{c.Tiles})
		own, err := tlog.ProveRecord(size, c.Index, reader)
		if err != nil {
			return err
		}
		return tlog.CheckRecord(own, size, root, c.Index, tlog.RecordHash(c.Entry))
	}
	return nil
}

// vectors prints trees, proofs and signed notes that Go made.
func vectors() error {
	private, public, err := note.GenerateKey(rand.Reader, "go.example/log")
	if err != nil {
		return err
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		return err
	}
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var found []tlog.Hash
		for _, index := range indexes {
			found = append(found, stored[index])
		}
		return found, nil
	})
	sizes := map[int64]bool{1: true, 2: true, 3: true, 7: true, 8: true, 255: true, 256: true, 257: true, 600: true}
	old, oldRoot := int64(0), tlog.Hash{}
	var made []judged
	for n := int64(0); n < 600; n++ {
		more, err := tlog.StoredHashes(n, []byte(fmt.Sprint("entry ", n)), reader)
		if err != nil {
			return err
		}
		stored = append(stored, more...)
		size := n + 1
		if !sizes[size] {
			continue
		}
		root, err := tlog.TreeHash(size, reader)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("go.example/log\n%d\n%s\n", size, root)
		signed, err := note.Sign(&note.Note{Text: text}, signer)
		if err != nil {
			return err
		}
		c := judged{LogKey: public, Note: signed, Index: size / 2, OldSize: old, OldRoot: oldRoot[:]}
		c.Entry = []byte(fmt.Sprint("entry ", c.Index))
		proof, err := tlog.ProveRecord(size, c.Index, reader)
		if err != nil {
			return err
		}
		for _, each := range proof {
			c.Proof = append(c.Proof, append([]byte(nil), each[:]...))
		}
		if old > 0 {
			growth, err := tlog.ProveTree(size, old, reader)
			if err != nil {
				return err
			}
			for _, each := range growth {
				c.Growth = append(c.Growth, append([]byte(nil), each[:]...))
			}
		}
		c.OldRoot = append([]byte(nil), c.OldRoot...)
		made = append(made, c)
		old, oldRoot = size, root
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	return out.Encode(made)
}

func main() {
	if len(os.Args) > 1 {
		if err := vectors(); err != nil {
			panic(err)
		}
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var c judged
		err := json.Unmarshal(lines.Bytes(), &c)
		if err == nil {
			err = judge(c)
		}
		if err == nil {
			fmt.Fprintln(out, "yes")
		} else {
			fmt.Fprintln(out, "no:", err)
		}
	}
}
