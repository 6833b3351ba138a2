//! What the end-to-end tests share: a folder to play in, runs of the binary, checks of JSON against the published schemas.
pub(crate) mod block_server;
pub(crate) mod contents;
pub(crate) mod damage;
pub(crate) mod freezer;
pub(crate) mod history;
pub(crate) mod mounting;
pub(crate) mod roles;
pub(crate) mod rounds;
pub(crate) mod schema;
pub(crate) mod second;
pub(crate) mod server;
pub(crate) mod tree;
pub(crate) mod volume_server;
pub(crate) mod watchdog;
pub(crate) mod webdav;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use larder_testkit::data;
use serde_json::Value;
use tempfile::TempDir;

/// The password of all repositories here.
pub(crate) const PASSWORD: &str = "correct horse";

/// A folder with room for a repository, a source and a target.
pub(crate) struct Play {
    dir: TempDir,
}

impl Play {
    /// An empty one.
    pub(crate) fn new() -> Self {
        watchdog::start();
        Self { dir: tempfile::tempdir().expect("a folder") }
    }

    /// One with a repository.
    pub(crate) fn with_repository() -> Self {
        let play = Self::new();
        play.larder(["init", "--insecure-kdf"]).ok();
        play
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The repository's folder.
    pub(crate) fn repository(&self) -> PathBuf {
        self.path("repository")
    }

    /// Writes a file of the source, and its folders.
    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders are made");
        std::fs::write(&path, content).expect("the file is written");
        path
    }

    /// A run of the binary that has not begun.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_larder")), args)
    }

    /// A run of another program that knows this repository.
    pub(crate) fn command_of<A: AsRef<OsStr>>(&self, program: &Path, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LARDER_") {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_remove("COLUMNS")
            .env("LARDER_REPOSITORY", self.repository())
            .env("LARDER_PASSWORD", PASSWORD)
            .env("LARDER_HOST", "testhost")
            // Most tests look at what a pass frees.
            .env("LARDER_MIN_AGE", "0")
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("LARDER_STATE", self.path("state"))
            .stdin(Stdio::null());
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn larder<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Ran {
        run(&mut self.command(args))
    }

    /// Runs the binary with something on its standard input.
    pub(crate) fn larder_with_stdin<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>, stdin: &[u8]) -> Ran {
        let mut child = self.spawn(self.command(args).stdin(Stdio::piped()));
        let mut pipe = child.stdin.take().expect("a pipe");
        let stdin = stdin.to_vec();
        // It may end without reading all.
        let feeder = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
        let ran = Ran::from(child.wait_with_output().expect("it ends"));
        feeder.join().expect("the feeder ends");
        ran
    }

    /// Starts the binary.
    pub(crate) fn spawn(&self, command: &mut Command) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("larder starts")
    }

    /// Waits until what was just written is old enough to be told from what is written next: times of files come in ticks.
    pub(crate) fn settle(&self) {
        std::thread::sleep(std::time::Duration::from_millis(60));
    }

    /// Backs up paths and returns the id of the snapshot.
    pub(crate) fn backup<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> String {
        let args: Vec<_> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let ran = self.larder(["backup".into(), "--json".into()].into_iter().chain(args)).ok();
        let summary = ran.messages("summary").pop().expect("a summary");
        summary["snapshot_id"].as_str().expect("an id").to_owned()
    }

    /// A run as a user without rights, who can use the repository's folder and the binary like anyone.
    ///
    /// Only root has to change; everybody else has no rights already.
    pub(crate) fn unprivileged<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let command = self.command_of(&self.binary_for_all(), args);
        self.without_rights(command)
    }

    /// The same with a limit on the processes and threads of that user.
    pub(crate) fn with_few_threads<A: AsRef<OsStr>>(&self, most: u32, args: impl IntoIterator<Item = A>) -> Command {
        self.limited(&format!("--nproc={most}"), args)
    }

    /// The same with a limit, as an option of `prlimit`.
    pub(crate) fn limited<A: AsRef<OsStr>>(&self, limit: &str, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.command_of(Path::new("timeout"), ["60", "prlimit", limit]);
        command.arg(self.binary_for_all()).args(args);
        self.without_rights(command)
    }

    fn without_rights(&self, mut command: Command) -> Command {
        if rustix::process::geteuid().is_root() {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(self.dir.path(), open).expect("the folder is ours");
            std::os::unix::process::CommandExt::uid(&mut command, 65534);
            std::os::unix::process::CommandExt::gid(&mut command, 65534);
        }
        command
    }

    /// The binary where everybody can run it: the checkout may lie in a folder that others may not enter.
    pub(crate) fn binary_for_all(&self) -> PathBuf {
        let binary = self.path("larder");
        if !binary.exists() {
            // By a process of its own: a program that is open for writing does not start, and another test's child may have
            // inherited the open file.
            let status = Command::new("cp").arg(env!("CARGO_BIN_EXE_larder")).arg(&binary).status().expect("cp runs");
            assert!(status.success());
        }
        binary
    }

    /// Lets everybody write below a path.
    pub(crate) fn open_to_all(&self, name: &str) {
        let status = Command::new("chmod").args(["-R", "a+rwX"]).arg(self.path(name)).status().expect("chmod runs");
        assert!(status.success());
    }

    /// Leases that no closing mark ends.
    pub(crate) fn open_leases(&self) -> usize {
        let jobs = damage::named(&self.repository(), "jobs/");
        let opened: Vec<_> = jobs.iter().filter_map(|name| name.strip_suffix("/0")).collect();
        opened.iter().filter(|job| !jobs.contains(&format!("{job}/done"))).count()
    }

    /// `latest` and a folder of the play in it.
    pub(crate) fn latest_of(&self, name: &str) -> String {
        format!("latest:{}", self.path(name).display())
    }

    /// Every object of the repository and its content.
    pub(crate) fn objects(&self) -> Vec<(String, Vec<u8>)> {
        damage::objects(&self.repository())
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    Ran::from(command.output().expect("larder starts"))
}

/// Starts a command that says in JSON when it is ready, and waits for that line, which has this schema.
pub(crate) fn ready(mut command: Command, schema: &str) -> (Child, BufReader<ChildStdout>, Value) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("larder starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    if line.is_empty() {
        let ended = child.wait_with_output().expect("it ends");
        panic!("it ended: {}", String::from_utf8_lossy(&ended.stderr));
    }
    let event: Value = serde_json::from_str(&line).expect("JSON");
    schema::check(schema, &event);
    (child, output, event)
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("this is a bug"), "a panic:\n{stderr}");
        let code = output.status.code().unwrap_or_else(|| 1000 + output.status.signal().unwrap_or(0));
        Self { code, stdout: output.stdout, stderr }
    }
}

/// A series of ten versions of one file, of which parts change each time, so that little of many containers is left in the newest one; its
/// id, and what it holds.
pub(crate) fn scattered(content_of: fn(u64, usize) -> Vec<u8>) -> (Play, String, Vec<u8>) {
    let play = Play::with_repository();
    let mut content = content_of(1, 2_000_000);
    let mut newest = String::new();
    for version in 0..10u64 {
        for (number, block) in content.chunks_mut(20_000).enumerate() {
            let seed = version * 1000 + number as u64;
            if version > 0 && data::random(seed, 1)[0] < 100 {
                block.copy_from_slice(&content_of(seed, block.len()));
            }
        }
        play.write("source/file", &content);
        newest = play.backup(["source", "--series", "s"]);
    }
    (play, newest, content)
}

impl Ran {
    /// It must have ended with this code.
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.text(), self.stderr);
        self
    }

    /// It must have done what it was asked.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.code(0)
    }

    /// Its errors must hold this text, and be short.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "{text:?} is not in:\n{}", self.stderr);
        self
    }

    /// Its last error must be of one or two lines.
    #[track_caller]
    pub(crate) fn in_two_lines(self) -> Self {
        let lines = self.stderr.lines().skip_while(|line| !line.starts_with("larder: ")).count();
        assert!((1..=2).contains(&lines), "{lines} lines:\n{}", self.stderr);
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }

    /// Standard output as one value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        schema::kinds_come_first(&self.text());
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    /// Standard output as lines of JSON.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        schema::kinds_come_first(&self.text());
        let parse = |line: &String| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        self.lines().iter().map(parse).collect()
    }

    /// The messages of one type on standard output.
    pub(crate) fn messages(&self, message_type: &str) -> Vec<Value> {
        self.json_lines().into_iter().filter(|message| message["message_type"] == message_type).collect()
    }

    /// The messages of one type on standard error.
    #[track_caller]
    pub(crate) fn errors(&self, message_type: &str) -> Vec<Value> {
        schema::kinds_come_first(&self.stderr);
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        let all: Vec<Value> = self.stderr.lines().map(parse).collect();
        all.into_iter().filter(|message| message["message_type"] == message_type).collect()
    }
}
