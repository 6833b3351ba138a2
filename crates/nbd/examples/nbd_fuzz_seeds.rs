//! Writes valid inputs for the NBD fuzz targets into a folder: `nbd_fuzz_seeds FOLDER`.

#[path = "../tests/suite/recorded.rs"]
mod recorded;

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: nbd_fuzz_seeds FOLDER")?;
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = Path::new(&folder).join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)
    };
    for (name, structured) in [("structured", true), ("simple", false)] {
        let (sent, received) = recorded::session(structured);
        write("nbd_server", name, &sent)?;
        write("nbd_client", name, &received)?;
    }
    use larder_nbd::codec::option::{ClientOption, Queries, Wish};
    use larder_nbd::codec::option_reply::{Info, OptionReply};
    use larder_nbd::codec::reply::Chunk;
    use larder_nbd::codec::request::{Command, Request};
    let wish = Wish { name: "disk".into(), infos: vec![1, 2, 3] };
    let queries = Queries { name: "disk".into(), queries: vec!["base:".into(), "a:b".into()] };
    write("nbd_client_messages", "go", &ClientOption::Go(wish).encode())?;
    write("nbd_client_messages", "contexts", &ClientOption::SetContexts(queries).encode())?;
    let request = Request { flags: 1, command: Command::Write, handle: 7, offset: 512, length: 4 };
    write("nbd_client_messages", "request", &request.encode())?;
    write("nbd_server_messages", "greeting", &larder_nbd::codec::greeting())?;
    let replies = [
        ("export", OptionReply::Info(Info::Export { size: 5, flags: 9 })),
        ("server", OptionReply::Server { name: "a".into(), description: "b".into() }),
        ("context", OptionReply::Context { id: 1, name: "a:b".into() }),
    ];
    for (name, reply) in replies {
        let mut bytes = Vec::new();
        reply.encode(7, &mut bytes);
        write("nbd_server_messages", name, &bytes)?;
    }
    let extents = vec![larder_nbd::Extent { length: 5, flags: 3 }, larder_nbd::Extent { length: 6, flags: 0 }];
    let chunks = [
        ("status", Chunk::BlockStatus { context: 1, extents }),
        ("hole", Chunk::Hole { offset: 3, length: 4 }),
        ("error", Chunk::Error { code: larder_nbd::ErrorCode::Io, message: "a".into(), offset: Some(9) }),
    ];
    for (name, chunk) in chunks {
        let mut bytes = Vec::new();
        chunk.encode(2, true, &mut bytes);
        write("nbd_server_messages", name, &bytes)?;
    }
    Ok(())
}
