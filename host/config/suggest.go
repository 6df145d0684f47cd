package config

import (
	"fmt"
	"slices"
	"strings"
)

// suggestKey says what an unknown key of a table most likely means: the same key of another table,
// a spelling close to one of this table, or a name from another server.
func suggestKey(table, key string) (label string, help []string) {
	key = strings.ReplaceAll(strings.ToLower(key), "-", "_") // As flags and YAML spell names.
	var names []string
	for _, r := range rowsOf(table) {
		names = append(names, r.key)
	}
	if homes := homesOf(key); len(homes) > 0 {
		label = fmt.Sprintf("%q belongs to %s", key, strings.Join(homes, " or "))
		return label, []string{belongsHelp(table)}
	}
	if guess := closest(key, names); guess != "" {
		return didYouMean(guess), nil
	}
	for i := range keys {
		r := &keys[i]
		if !slices.Contains(r.foreign, key) {
			continue
		}
		if r.table == table {
			return didYouMean(r.key), nil
		}
		return fmt.Sprintf("called %s here", r.name()), nil
	}
	if len(names) == 0 {
		return "no such key", []string{`only "version" stands outside a table`}
	}
	return "no such key", []string{fmt.Sprintf("[%s] has: %s", table, strings.Join(names, ", "))}
}

// belongsHelp explains TOML's own trap.
func belongsHelp(table string) string {
	if table == "" {
		return `write the table's line above it; only "version" stands outside a table`
	}
	return "in TOML every key after a [table] line belongs to that table, to the next table " +
		"or the end of the file"
}

// homesOf are the tables that have a key of exactly this name.
func homesOf(key string) []string {
	var homes []string
	for i := range keys {
		if keys[i].key == key {
			homes = append(homes, "["+keys[i].table+"]")
		}
	}
	return homes
}

// tableNames are the names that a header may hold.
func tableNames() []string {
	var names []string
	for _, s := range sections {
		if s.name != "" {
			names = append(names, s.name)
		}
	}
	return names
}

// didYouMean is the label of a guess, "" without one.
func didYouMean(guess string) string {
	if guess == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", guess)
}

// longestGuess bounds what is compared: the distance costs the product of both lengths.
const longestGuess = 64

// closest is the option nearest to word: at most two edits away, for short words one. Ties go to
// the first.
func closest(word string, options []string) string {
	if len(word) > longestGuess {
		return ""
	}
	best, bestAt := "", min(2, max(1, len(word)/3))+1
	for _, option := range options {
		if d := distance(strings.ToLower(word), option); d < bestAt {
			best, bestAt = option, d
		}
	}
	return best
}

// distance counts the insertions, deletions, substitutions and swaps of neighbours that turn a into
// b (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
