//! Builds a tree with every odd thing: `torture DIR [--many N] [--large]`. DIR is made if missing and must be empty.
//!
//! Used by end-to-end tests. What the file system or the rights here do not allow is listed on standard output.
#![expect(clippy::print_stdout, reason = "a command line tool")]

#[path = "../tests/walk/support/torture.rs"]
#[expect(dead_code, reason = "tests use more of it")]
mod torture;

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut torture = torture::Torture { many: 5_000, huge_sparse: 100 << 30, large_files: false };
    let mut folder: Option<PathBuf> = None;
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--many") => {
                let count = arguments.next().ok_or("--many wants a number")?;
                torture.many = count.to_str().ok_or("--many wants a number")?.parse()?;
            }
            Some("--large") => torture.large_files = true,
            Some(unknown) if unknown.starts_with('-') => return Err(format!("unknown option {unknown}").into()),
            _ => folder = Some(argument.into()),
        }
    }
    let folder = folder.ok_or("usage: torture DIR [--many N] [--large]")?;
    std::fs::create_dir_all(&folder)?;
    if std::fs::read_dir(&folder)?.next().is_some() {
        return Err(format!("{} is not empty", folder.display()).into());
    }
    for missing in torture.build(&folder)? {
        println!("not here: {missing}");
    }
    Ok(())
}
