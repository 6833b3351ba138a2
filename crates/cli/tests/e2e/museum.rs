//! The museum of damaged repositories: one damage each, what every command says of it word for word, and the repair that helps.
//!
//! All exhibits are made from one small repository. What is said about each is in `museum/<name>.txt`: the commands, their exit codes,
//! what they print (standard error with `! ` before it), and whether what was restored is the source. Ids, times, sizes and counts of
//! chunks differ from run to run and are replaced. `LARDER_MUSEUM=write` writes these files again, for the eye to compare.

mod exhibits;
mod transcript;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use self::exhibits::{Exhibit, Step, exhibits};
use self::transcript::Transcript;
use crate::support::{PASSWORD, Play, Ran, damage, run, tree};

/// The repository that all exhibits are made from.
struct Original {
    play: Play,
    /// Ids of snapshots by the names they have here.
    names: Vec<(&'static str, String)>,
}

impl Original {
    fn new() -> Self {
        let play = Play::with_repository();
        play.larder(["key", "export", "--output", "paper"]).ok();
        let mut names = Vec::new();
        // Files of several frames, so that a flipped bit costs some of them and not all.
        play.write("one/a", tree::noise(1, 100_000));
        play.write("one/large", tree::noise(2, 1_800_000));
        play.write("one/z", "the first edition");
        play.settle();
        names.push(("one.1", play.backup(["one", "--series", "one"])));
        play.write("two/f", tree::noise(3, 200_000));
        play.write("two/small", "small");
        play.settle();
        names.push(("two.1", play.backup(["two", "--series", "two"])));
        // Every edition of every file is kept, to be put back from.
        copy(&play.path("one"), &play.path("kept"));
        play.write("one/z", "the second edition");
        play.write("one/new", tree::noise(4, 50_000));
        play.settle();
        names.push(("one.2", play.backup(["one", "--series", "one"])));
        // A snapshot that was repaired once has a second generation of its manifest.
        play.write("three/f", tree::noise(5, 50_000));
        play.settle();
        names.push(("three.1", play.backup(["three", "--series", "three"])));
        let lost = damage::named(&play.repository(), &format!("data/{}/", names[3].1)).remove(0);
        damage::remove(&play.repository(), &lost);
        play.larder(["repair", "--from", "three"]).ok();
        play.larder(["optimize", "--task", "collect"]).ok();
        play.larder(["pin", &names[1].1, "--reason", "for the museum"]).ok();
        play.larder(["series", "set", "one", "--holes", "5"]).ok();
        play.larder(["series", "set", "one", "--holes", "10"]).ok();
        play.larder(["series", "set", "--default", "--holes", "30"]).ok();
        play.write("four/f", "forgotten");
        play.settle();
        names.push(("four.1", play.backup(["four", "--series", "four"])));
        play.larder(["forget", &names[4].1]).ok();
        Self { play, names }
    }

    /// Replaces `{one.1}` and the like by ids.
    fn with_ids(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, id)| text.replace(&format!("{{{name}}}"), id))
    }
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
    assert!(status.success());
}

/// One exhibit being looked at.
struct Room<'a> {
    original: &'a Original,
    dir: tempfile::TempDir,
    transcript: Transcript,
}

impl Room<'_> {
    fn repository(&self) -> PathBuf {
        self.dir.path().join("repository")
    }

    fn larder(&self, args: &[String]) -> Ran {
        let mut command = self.original.play.command(args);
        command.env("LARDER_REPOSITORY", self.repository()).env("XDG_CACHE_HOME", self.dir.path().join("cache"));
        command.env("LARDER_STATE", self.dir.path().join("state"));
        run(&mut command)
    }

    /// The object that a pattern such as `data/{one.1}/0` or `keys/` means: the first whose name has all its parts in it.
    fn object(&self, pattern: &str) -> String {
        let pattern = self.original.with_ids(pattern);
        let parts: Vec<_> = pattern.split('*').collect();
        let names = damage::objects(&self.repository()).into_iter().map(|(name, _)| name);
        let is_meant = |name: &String| {
            name.starts_with(parts[0])
                && name.ends_with(parts[parts.len() - 1])
                && parts.iter().all(|part| name.contains(part))
        };
        names.into_iter().find(is_meant).unwrap_or_else(|| panic!("there is no {pattern}"))
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Run(line) => {
                let line = self.original.with_ids(line);
                let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
                let ran = self.larder(&args);
                self.transcript.ran(&line, &ran);
            }
            Step::Restore(series) => {
                let target = self.dir.path().join("restored");
                let source = self.original.play.path(series);
                let (dir, name) = (target.display().to_string(), source.display().to_string());
                let line = format!("restore latest:{name} --series {series} --target {dir}");
                let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
                let ran = self.larder(&args);
                self.transcript.ran(&line, &ran);
                self.transcript.compared(&compare(&source, &target));
                let _ = std::fs::remove_dir_all(&target);
            }
            Step::PutBack => {
                std::fs::remove_dir_all(self.repository()).expect("removed");
                copy(&self.original.play.repository(), &self.repository());
                let _ = std::fs::remove_dir_all(self.dir.path().join("state"));
                copy(&self.original.play.path("state"), &self.dir.path().join("state"));
                self.transcript.note("the objects are put back as they were");
            }
            Step::Import => {
                let mut command = self.original.play.command(["key", "import", "--insecure-kdf", "paper"]);
                command.env("LARDER_REPOSITORY", self.repository()).env("LARDER_NEW_PASSWORD", PASSWORD);
                self.transcript.ran("key import --insecure-kdf paper", &run(&mut command));
            }
            Step::Remove(pattern) => {
                let name = self.object(pattern);
                damage::remove(&self.repository(), &name);
                self.transcript.note(&format!("{name} is removed by hand"));
            }
        }
    }
}

/// How the files of a folder differ from those of another.
fn compare(source: &Path, restored: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(source).expect("a folder").map(|entry| entry.expect("one").file_name()).collect();
    names.sort();
    let mut differences = Vec::new();
    for name in names {
        let shown = name.to_string_lossy();
        match (std::fs::read(source.join(&name)), std::fs::read(restored.join(&name))) {
            (Ok(a), Ok(b)) if a == b => {}
            (Ok(_), Ok(_)) => differences.push(format!("{shown} is another")),
            (Ok(_), Err(_)) => differences.push(format!("{shown} is not there")),
            (Err(error), _) => panic!("{shown}: {error}"),
        }
    }
    differences
}

/// Looks at one exhibit from the damage to its repair.
fn visit(original: &Original, exhibit: &Exhibit) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    copy(&original.play.repository(), &dir.path().join("repository"));
    copy(&original.play.path("state"), &dir.path().join("state"));
    let mut names: Vec<(String, String)> =
        original.names.iter().map(|(name, id)| (id.clone(), (*name).to_owned())).collect();
    names.push((original.play.path("").display().to_string(), "SOURCES/".to_owned()));
    names.push((dir.path().display().to_string(), "HERE".to_owned()));
    let transcript = Transcript::new(exhibit.title, names);
    let mut room = Room { original, dir, transcript };
    let object = match exhibit.plants {
        true => original.with_ids(exhibit.object),
        false => room.object(exhibit.object),
    };
    let other = exhibit.other.map(|other| room.object(other));
    (exhibit.damage)(&room.repository(), &object, other.as_deref());
    exhibit.steps.iter().for_each(|step| room.step(step));
    room.transcript.finish()
}

#[test]
fn every_exhibit_is_what_its_label_says() {
    let exhibits = exhibits();
    assert!(exhibits.len() >= 25);
    let original = Original::new();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/museum");
    let is_written = std::env::var_os("LARDER_MUSEUM").is_some_and(|value| value == "write");
    let next = AtomicUsize::new(0);
    let wrong = parking_lot::Mutex::new(Vec::new());
    let look = || {
        while let Some(exhibit) = exhibits.get(next.fetch_add(1, Ordering::Relaxed)) {
            let path = folder.join(exhibit.name).with_extension("txt");
            let seen = visit(&original, exhibit);
            if is_written {
                std::fs::write(&path, &seen).expect("written");
            }
            let label = std::fs::read_to_string(&path).unwrap_or_default();
            if label != seen {
                wrong.lock().push(format!("{}:\n--- the label\n{label}\n--- what is seen\n{seen}", exhibit.name));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(look);
        }
    });
    let wrong = wrong.into_inner();
    assert!(wrong.is_empty(), "{} exhibits are not what their labels say:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn no_label_is_without_its_exhibit() {
    let (exhibits, folder) = (exhibits(), PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/museum"));
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            assert!(exhibits.iter().any(|exhibit| exhibit.name == name), "{name}");
        }
    }
}
