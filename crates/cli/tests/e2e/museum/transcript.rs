//! What commands said, without what differs from run to run.

use crate::support::Ran;

/// What was done with one exhibit, and what was said.
pub(super) struct Transcript {
    text: String,
    /// Ids and paths, and the names they have here.
    names: Vec<(String, String)>,
}

impl Transcript {
    pub(super) fn new(title: &str, names: Vec<(String, String)>) -> Self {
        Self { text: format!("{title}\n"), names }
    }

    pub(super) fn ran(&mut self, line: &str, ran: &Ran) {
        self.text.push('\n');
        self.add("", &format!("$ larder {line}"));
        let said: Vec<String> = ran.lines().iter().map(|line| self.shown(line)).collect();
        let warned: Vec<String> = ran.stderr.lines().map(|line| self.shown(line)).collect();
        in_order(said, "DAMAGED ").iter().for_each(|line| self.put("", line));
        in_order(warned, "warning: ").iter().for_each(|line| self.put("! ", line));
        self.add("", &format!("exit {}", ran.code));
    }

    pub(super) fn compared(&mut self, differences: &[String]) {
        if differences.is_empty() {
            self.add("= ", "what was restored is the source");
        }
        differences.iter().for_each(|difference| self.add("= ", difference));
    }

    pub(super) fn note(&mut self, text: &str) {
        self.text.push('\n');
        self.add("", &format!("# {text}"));
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    fn add(&mut self, prefix: &str, line: &str) {
        let line = self.shown(line);
        self.put(prefix, &line);
    }

    fn put(&mut self, prefix: &str, line: &str) {
        self.text.push_str(format!("{prefix}{line}").trim_end());
        self.text.push('\n');
    }

    fn shown(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for (id, name) in &self.names {
            line = line.replace(id, name);
            if id.len() == 32 {
                line = line.replace(&id[24..], name);
            }
        }
        closed_up(&without_numbers(&without_ids(&without_facts(&line))))
    }
}

/// Sorts neighbouring paragraphs that begin like this: what is told of objects is told by their names, and those are keyed.
fn in_order(lines: Vec<String>, beginning: &str) -> Vec<String> {
    let mut paragraphs: Vec<Vec<String>> = Vec::new();
    for line in lines {
        match paragraphs.last_mut() {
            Some(paragraph) if line.starts_with(' ') => paragraph.push(line),
            _ => paragraphs.push(vec![line]),
        }
    }
    for neighbours in paragraphs.chunk_by_mut(|a, b| a[0].starts_with(beginning) && b[0].starts_with(beginning)) {
        neighbours.sort();
    }
    paragraphs.into_iter().flatten().collect()
}

/// Replaces bytes that were found instead of others, and who did something where.
fn without_facts(line: &str) -> String {
    let mut line = line.to_owned();
    for (begin, end) in [("it begins with [", "]"), ("is pinned (on ", ")")] {
        if let Some((before, after)) = line.split_once(begin) {
            let rest = after.split_once(end).map_or("", |(_, rest)| rest);
            line = format!("{before}{begin}…{end}{rest}");
        }
    }
    line
}

/// Columns are as wide as what is in them, and that differs.
fn closed_up(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    if line.len() > 4 && line.bytes().all(|byte| byte == b'-') {
        return "----".to_owned();
    }
    line[..indent].to_owned() + &line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Replaces ids that have no name: runs of 8, 16 or 32 hexadecimal digits.
fn without_ids(line: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in line.chars().chain(std::iter::once('\n')) {
        if c.is_ascii_alphanumeric() {
            word.push(c);
            continue;
        }
        let is_hex = word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        out.push_str(match word.len() {
            8 | 16 | 32 if is_hex => "ID",
            _ => &word,
        });
        word.clear();
        if c != '\n' {
            out.push(c);
        }
    }
    out
}

/// Replaces times, sizes, and counts of what chance decides about.
fn without_numbers(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let mut out: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let bare = word.trim_start_matches('(');
        let next = words.get(at + 1).copied().unwrap_or_default().trim_end_matches([',', ')', ':', ';']);
        let after = words.get(at + 2).copied().unwrap_or_default();
        let is_size = matches!(next, "B" | "KiB" | "MiB" | "bytes");
        let is_chance = matches!(next, "chunk" | "chunks" | "container" | "containers" | "requests" | "other")
            || (next == "lost" && after.starts_with("chunk"))
            || at.checked_sub(2).is_some_and(|before| words[before..at] == ["instead", "of"])
            || next == "found"
            || (next == "of" && (words.get(at + 3).is_some_and(|word| matches!(*word, "bytes" | "lost"))));
        let shown = if number(bare) && (is_size || is_chance) {
            word.replace(bare, "N")
        } else if is_date(bare) {
            "DATE".to_owned()
        } else if is_clock(bare.trim_end_matches([',', ':', ')'])) {
            word.replace(bare.trim_end_matches([',', ':', ')']), "TIME")
        } else if matches!(*word, "B" | "KiB" | "MiB")
            || matches!(word.trim_end_matches([',', ')', ':', ';']), "KiB" | "MiB" | "B")
        {
            word.replace("KiB", "bytes").replace("MiB", "bytes").replace('B', "bytes")
        } else {
            (*word).to_owned()
        };
        out.push(shown);
    }
    out.join(" ")
}

fn is_date(word: &str) -> bool {
    word.len() == 10
        && word
            .bytes()
            .enumerate()
            .all(|(at, byte)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() })
}

fn is_clock(word: &str) -> bool {
    word.contains(':') && word.len() >= 4 && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
}
