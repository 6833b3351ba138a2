//! Archives that `gzip` compressed: one member behind the other, and perhaps zeros behind the last one,
//! which tapes and block devices leave.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// See the module header. Everything up to the end of the input is looked at.
pub(super) struct GzipMembers<R> {
    state: State<R>,
}

enum State<R> {
    Member(Box<GzDecoder<R>>),
    Between(R),
    End,
}

impl<R: BufRead> GzipMembers<R> {
    pub(super) fn new(input: R) -> Self {
        Self { state: State::Member(Box::new(GzDecoder::new(input))) }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.state, State::End) {
                State::End => return Ok(0),
                State::Member(mut member) => match member.read(buffer) {
                    Ok(0) => self.state = State::Between(member.into_inner()),
                    result => {
                        // Behind an error there is nothing that could be trusted.
                        if result.is_ok() {
                            self.state = State::Member(member);
                        }
                        return result;
                    }
                },
                State::Between(mut input) => {
                    let mut zeros = 0_u64;
                    let next = loop {
                        let ready = input.fill_buf()?;
                        let (count, next) = match ready.iter().position(|byte| *byte != 0) {
                            Some(at) => (at, ready.get(at).copied()),
                            None => (ready.len(), None),
                        };
                        let is_end = ready.is_empty();
                        input.consume(count);
                        zeros += count as u64;
                        if is_end || next.is_some() {
                            break next;
                        }
                    };
                    match next {
                        None => return Ok(0),
                        Some(_) if zeros == 0 => self.state = State::Member(Box::new(GzDecoder::new(input))),
                        Some(_) => {
                            return Err(io::Error::new(
                                io::ErrorKind::InvalidData,
                                "something follows behind the zeros at its end",
                            ));
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("compressed");
        encoder.finish().expect("compressed")
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut whole = Vec::new();
        GzipMembers::new(io::BufReader::with_capacity(7, bytes)).read_to_end(&mut whole)?;
        Ok(whole)
    }

    #[test]
    fn members_follow_each_other_and_zeros_may_follow_the_last() {
        let (one, two) = (compressed(b"one"), compressed(b"two"));
        assert_eq!(read(&one).expect("whole"), b"one");
        assert_eq!(read(&[&*one, &two].concat()).expect("whole"), b"onetwo");
        assert_eq!(read(&[&*one, &two, &[0; 1000]].concat()).expect("whole"), b"onetwo");
        assert!(read(&[&*one, b"x"].concat()).is_err());
        assert!(read(&[&*one, &[0; 30], &two].concat()).is_err());
        assert!(read(&one[..one.len() - 1]).is_err());
        let mut wrong = one;
        let at = wrong.len() - 6;
        wrong[at] ^= 1;
        assert!(read(&wrong).is_err(), "its checksum is wrong");
    }
}
