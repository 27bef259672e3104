//! What a process says on its standard error: the last line is kept, or each is printed.
//!
//! # Invariants
//! I1. Memory: one line of at most `LINE_MAX` bytes for each process, whatever it says.
//! I2. Nobody waits for a process to fall silent: what it left in the background may keep the pipe
//!     open for ever.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::send::say_line;

/// Longest line that is shown: a sentence with a path in it.
const LINE_MAX: u64 = 500;

/// Longest text of [`excerpt`]: a word and some more, so that a mistake is recognised.
const EXCERPT_MAX: usize = 64;

/// The last words of a process that has ended are in its pipe already; a busy machine needs some
/// scheduler slices to bring them.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The standard error of one process.
#[derive(Debug)]
pub(super) struct ErrorOutput {
    heard: Arc<PrintedLines>,
    /// Its end says that nothing more will come.
    silence: Receiver<()>,
}

#[derive(Debug, Default)]
struct PrintedLines {
    /// The last line that was not printed.
    last: Mutex<Option<String>>,
    /// The last line that was printed.
    printed: Mutex<Option<String>>,
    is_public: AtomicBool,
}

impl ErrorOutput {
    /// Listens to `child`, whose standard error is a pipe.
    pub(super) fn open(child: &mut Child, host: &str) -> io::Result<Self> {
        let heard = Arc::new(PrintedLines::default());
        let (alive, silence) = channel();
        if let Some(pipe) = child.stderr.take() {
            let (heard, host) = (Arc::clone(&heard), host.to_owned());
            let life = move || listen(pipe, &host, &heard, &alive);
            thread::Builder::new().name("words".to_owned()).spawn(life)?;
        }
        Ok(Self { heard, silence })
    }

    /// Prints everything from now on, with the name of the host in front.
    pub(super) fn forward(&self) {
        self.heard.is_public.store(true, Ordering::Release);
    }

    /// Prints nothing any more from now on.
    pub(super) fn stop(&self) {
        self.heard.is_public.store(false, Ordering::Release);
    }

    /// Returns the last line that was not printed, of a process that has ended.
    pub(super) fn last(&self) -> Option<String> {
        let _ = self.silence.recv_timeout(TIMEOUT);
        self.heard.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether `sentence` was printed; nothing as long as no such line has come. Only the
    /// last lines are remembered.
    pub(super) fn has_printed(&self, sentence: &str) -> Option<bool> {
        let sentence = printable(sentence.as_bytes());
        let is_in = |line: &Mutex<Option<String>>| {
            *line.lock().unwrap_or_else(PoisonError::into_inner) == sentence
        };
        match is_in(&self.heard.printed) {
            true => Some(true),
            false => is_in(&self.heard.last).then_some(false),
        }
    }
}

/// Reads lines until there are no more; `_alive` is dropped then.
fn listen(pipe: ChildStderr, host: &str, heard: &PrintedLines, _alive: &Sender<()>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        if pipe.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).unwrap_or(0) == 0 {
            return;
        }
        let Some(line) = printable(&line) else { continue };
        if heard.is_public.load(Ordering::Acquire) {
            say_line(&format!("{host}: {line}"));
            *heard.printed.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
        } else {
            *heard.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
        }
    }
}

/// Returns the line as [`escaped`] shows it; nothing when nothing is left.
fn printable(line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    (!text.is_empty()).then(|| escaped(text))
}

/// Shows `text` from outside on a terminal without harm: what moves the cursor, or changes the
/// direction of what follows, is written as an escape (`\u{1b}`, `\n`).
pub fn escaped(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match steers(c) {
            true if c.is_control() => shown.extend(c.escape_debug()),
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown
}

/// Returns [`escaped`] text of some length at most, for a sentence that quotes what anybody may have
/// written; `…` stands for the rest.
pub fn excerpt(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        let part = escaped(c.encode_utf8(&mut [0; 4]));
        if shown.len() + part.len() > EXCERPT_MAX {
            shown.push('…');
            break;
        }
        shown.push_str(&part);
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn last(script: &str) -> Option<String> {
        let mut child =
            Command::new("sh").args(["-c", script]).stderr(Stdio::piped()).spawn().unwrap();
        let words = ErrorOutput::open(&mut child, "n1").unwrap();
        child.wait().unwrap();
        words.last()
    }

    #[test]
    fn last__is_the_last_line_with_something_in_it() {
        assert_eq!(
            last("printf 'one\\n\\033[1mtwo\\r\\n\\n' >&2").as_deref(),
            Some("\\u{1b}[1mtwo")
        );
        assert_eq!(last("printf 'unfinished' >&2").as_deref(), Some("unfinished"));
        assert_eq!(last("true"), None);
    }

    /// A rank may say why it ends before its starter hears that it joined.
    #[test]
    fn has_printed__a_sentence_that_came_too_early_was_not() {
        let mut child = Command::new("sh")
            .args(["-c", "echo wrong >&2"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let words = ErrorOutput::open(&mut child, "n1").unwrap();
        child.wait().unwrap();
        assert_eq!(words.last().as_deref(), Some("wrong"));
        words.forward();
        assert_eq!((words.has_printed("wrong"), words.has_printed("other")), (Some(false), None));
    }

    #[test]
    fn has_printed__what_came_in_time_was() {
        let mut child = Command::new("sh")
            .args(["-c", "read go; echo ' wrong' >&2"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let words = ErrorOutput::open(&mut child, "n1").unwrap();
        words.forward();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!((words.last(), words.has_printed("wrong")), (None, Some(true)));
    }

    #[test]
    fn last__a_line_without_end_is_cut() {
        let line = last("head -c 5000 /dev/zero | tr '\\0' x >&2").unwrap();
        assert!(line.len() <= LINE_MAX as usize, "{}", line.len());
    }

    #[test]
    fn escaped__nothing_steers_a_terminal() {
        let shown = escaped("a\u{1b}]0;title\u{7}\r\n\u{9b}2J\u{202e}b \u{e9}\\");
        assert_eq!(shown, "a\\u{1b}]0;title\\u{7}\\r\\n\\u{9b}2J\\u{202e}b \u{e9}\\");
    }

    #[test]
    fn excerpt__what_is_long_ends_with_dots_and_before_an_escape_that_is_cut() {
        assert_eq!(excerpt("bulk\n"), "bulk\\n");
        assert_eq!(excerpt(&"\u{e9}".repeat(32)), "\u{e9}".repeat(32));
        assert_eq!(excerpt(&"x".repeat(65)), format!("{}…", "x".repeat(64)));
        let shown = excerpt(&format!("{}\u{1b}[2J", "x".repeat(60)));
        assert_eq!(shown, format!("{}…", "x".repeat(60)));
    }
}
