//! A MinIO server on the loopback.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

const KEY: &str = "larder";
const SECRET: &str = "larder-secret";
const BUCKET: &str = "bench";

/// See the module header. Stops with this.
pub(crate) struct Minio {
    server: Child,
    folder: PathBuf,
    pub(crate) address: SocketAddr,
}

impl Minio {
    /// Starts `program` with its data below `folder`.
    pub(crate) fn start(program: &Path, folder: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(folder.join(BUCKET)).with_context(|| format!("cannot make {}", folder.display()))?;
        // Somebody could take the port in between; then the server ends and the first request fails.
        let address =
            TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).context("no free port")?;
        let mut command = Command::new(program);
        command.arg("server").arg(&folder).args(["--quiet", "--address", &address.to_string()]);
        command.envs([("MINIO_ROOT_USER", KEY), ("MINIO_ROOT_PASSWORD", SECRET), ("MINIO_BROWSER", "off")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let minio = Self { server, folder, address };
        for _ in 0..100 {
            if TcpStream::connect(address).is_ok() {
                // It listens before it is ready.
                std::thread::sleep(Duration::from_secs(1));
                return Ok(minio);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        anyhow::bail!("{} does not listen on {address}", program.display())
    }

    pub(crate) fn variables() -> [(&'static str, &'static str); 3] {
        [("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_REGION", "us-east-1")]
    }

    /// The repository, through this address.
    pub(crate) fn repository(through: SocketAddr) -> String {
        format!("s3:http://{through}/{BUCKET}/repository")
    }

    /// Keys of the stored data containers: MinIO keeps each object as a folder of that name.
    pub(crate) fn containers(&self) -> anyhow::Result<Vec<String>> {
        let bucket = self.folder.join(BUCKET);
        let mut keys = Vec::new();
        let mut folders = vec![bucket.join("repository").join("data")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
                let path = entry?.path();
                if path.join("xl.meta").exists() {
                    keys.push(path.strip_prefix(&bucket).context("outside of the bucket")?.display().to_string());
                } else if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        keys.sort();
        Ok(keys)
    }

    /// Bytes of these objects.
    pub(crate) fn bytes(&self, keys: &[String]) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for key in keys {
            let mut folders = vec![self.folder.join(BUCKET).join(key)];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
                    let entry = entry?;
                    if entry.file_type()?.is_dir() {
                        folders.push(entry.path());
                    } else {
                        bytes += entry.metadata()?.len();
                    }
                }
            }
        }
        Ok(bytes)
    }

    /// curl fetching these objects, so many at once, through this address.
    pub(crate) fn fetch(through: SocketAddr, keys: &[String], at_once: usize) -> Command {
        let mut command = Command::new("curl");
        // In parallel it shows progress even when asked to be silent.
        command.stderr(Stdio::null());
        command.args(["--silent", "--fail", "--no-buffer", "--aws-sigv4", "aws:amz:us-east-1:s3"]);
        command.args(["--user", &format!("{KEY}:{SECRET}"), "--parallel", "--parallel-max", &at_once.to_string()]);
        for key in keys {
            command.args(["--output", "/dev/null", &format!("http://{through}/{BUCKET}/{key}")]);
        }
        command
    }
}

impl Drop for Minio {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
