//! An HTTP server on a loopback port that gives prepared answers and keeps the requests.
//!
//! Just enough HTTP/1.1 for a client library: one request at a time per connection, bodies of known
//! length.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method: `GET`, `PUT`, ...
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// The first header of that name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Requests whose answers are held back, and then given all together. Clones are the same.
#[derive(Debug, Clone)]
pub struct Rounds(Arc<watch::Sender<u64>>);

impl Default for Rounds {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Rounds {
    /// A place in the round that is under way, for one request.
    pub fn join(&self) -> Round {
        let ended = self.0.subscribe();
        let number = *ended.borrow();
        Round { number, ended }
    }

    /// Ends the round: its requests get their answers, and those that come from now on wait for the
    /// end of the next one.
    pub fn end(&self) {
        self.0.send_modify(|number| *number += 1);
    }
}

/// A place of one request in a round.
#[derive(Debug, Clone)]
pub struct Round {
    number: u64,
    ended: watch::Receiver<u64>,
}

impl Round {
    /// The number of the round, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    async fn over(&mut self) {
        let number = self.number;
        // Without anybody who ends it, it is over.
        drop(self.ended.wait_for(|ended| *ended > number).await);
    }
}

/// A prepared answer.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A whole answer: status, header lines, body.
    Whole(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// The headers announce this many bytes; then comes the body and the connection closes.
    Announce(u16, Vec<(&'static str, String)>, usize, Vec<u8>),
    /// The connection closes without an answer.
    Close,
    /// Nothing happens for this long; then the connection closes.
    Silence(Duration),
    /// The answer comes after this time.
    Later(Duration, Box<Answer>),
    /// The answer comes when the round is over.
    InRound(Round, Box<Answer>),
}

impl Answer {
    /// A status with a body.
    pub fn status(status: u16, body: &str) -> Self {
        Self::Whole(status, Vec::new(), body.as_bytes().to_vec())
    }
}

/// The server. It ends with the runtime.
#[derive(Debug, Clone)]
pub struct Canned {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Canned {
    /// Starts a server that answers each request with what `answer` makes of its number and itself.
    pub async fn start(answer: impl Fn(usize, &Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let server = Self { address, requests: requests.clone() };
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (requests, answer) = (requests.clone(), answer.clone());
                tokio::spawn(async move {
                    // A client that goes away ends its connection, nothing else.
                    let _ = serve(stream, &requests, answer.as_ref()).await;
                });
            }
        });
        server
    }

    /// Where it listens: `http://127.0.0.1:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }
}

async fn serve(
    stream: TcpStream,
    requests: &Mutex<Vec<Request>>,
    answer: &(impl Fn(usize, &Request) -> Answer + Send + Sync),
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream).await? {
        let number = {
            let mut requests = requests.lock();
            requests.push(request.clone());
            requests.len() - 1
        };
        let mut answer = answer(number, &request);
        loop {
            answer = match answer {
                Answer::Later(time, late) => {
                    tokio::time::sleep(time).await;
                    *late
                }
                Answer::InRound(mut round, late) => {
                    round.over().await;
                    *late
                }
                _ => break,
            };
        }
        let (status, headers, announced, body) = match answer {
            Answer::Whole(status, headers, body) => (status, headers, body.len(), body),
            Answer::Announce(status, headers, announced, body) => (status, headers, announced, body),
            Answer::Close => return Ok(()),
            Answer::Silence(time) => {
                tokio::time::sleep(time).await;
                return Ok(());
            }
            // Replaced above.
            Answer::Later(..) | Answer::InRound(..) => return Ok(()),
        };
        let mut head = format!("HTTP/1.1 {status} Canned\r\ncontent-length: {announced}\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await?;
        if request.method != "HEAD" {
            stream.write_all(&body).await?;
        }
        stream.flush().await?;
        if announced != body.len() {
            return Ok(());
        }
    }
    Ok(())
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok(Some(Request { method, target, headers, body }))
}
