//! Roles: what the holder of a key may do.
//!
//! | bit | role    | may                                                                          |
//! |----:|---------|------------------------------------------------------------------------------|
//! |   1 | backup  | make versions of its domain, list and compare them; read no contents         |
//! |   2 | restore | read everything                                                              |
//! |   4 | operate | forget, pin, set, collect, index, rebuild; read names, no contents           |
//! |   8 | all     | everything, and make keys                                                    |

use std::fmt;
use std::str::FromStr;

/// A set of roles, never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Roles(u8);

const WORDS: [(u8, &str); 3] = [(1, "backup"), (2, "restore"), (4, "operate")];

impl Roles {
    /// Makes versions.
    pub const BACKUP: Self = Self(1);
    /// Reads versions.
    pub const RESTORE: Self = Self(2);
    /// Maintains the repository.
    pub const OPERATE: Self = Self(4);
    /// Everything, from the master key.
    pub const ALL: Self = Self(15);

    /// Whether the master key comes with it.
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// Whether it has all of these roles.
    pub fn holds(self, roles: Self) -> bool {
        self.0 & roles.0 == roles.0
    }

    /// Both.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What its holder may do, as verbs.
    pub fn verbs(self) -> &'static str {
        match self.0 {
            1 => "back up",
            2 => "restore",
            3 => "back up and restore",
            4 => "operate",
            5 => "back up and operate",
            6 => "restore and operate",
            7 => "back up, restore and operate",
            _ => "do everything",
        }
    }

    /// `None` for no role, and for bits that this program does not know.
    fn from_bits(bits: u8) -> Option<Self> {
        (matches!(bits, 1..=7) || bits == Self::ALL.0).then_some(Self(bits))
    }
}

impl<C> minicbor::Encode<C> for Roles {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.u8(self.0)?.ok()
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Roles {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        Self::from_bits(d.u8()?).ok_or_else(|| minicbor::decode::Error::message("unknown roles"))
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all");
        }
        let words: Vec<_> = WORDS.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, word)| *word).collect();
        f.write_str(&words.join("+"))
    }
}

/// Text that names no roles.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no role; roles are backup, restore, operate, and all")]
pub struct InvalidRole(String);

impl FromStr for Roles {
    type Err = InvalidRole;

    fn from_str(text: &str) -> Result<Self, InvalidRole> {
        if text == "all" {
            return Ok(Self::ALL);
        }
        let mut bits = 0;
        for word in text.split(['+', ',']) {
            let known = WORDS.iter().find(|(_, known)| *known == word);
            bits |= known.ok_or_else(|| InvalidRole(text.to_owned()))?.0;
        }
        Ok(Self(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_they_are_shown() {
        for bits in 0..=255 {
            match Roles::from_bits(bits) {
                Some(roles) => assert_eq!(roles.to_string().parse(), Ok(roles), "{bits}"),
                None => assert!(bits == 0 || (bits > 7 && bits != 15), "{bits}"),
            }
        }
        assert_eq!("operate,restore".parse(), Ok(Roles::OPERATE.and(Roles::RESTORE)));
        assert!("".parse::<Roles>().is_err() && "admin".parse::<Roles>().is_err());
        assert!("all+backup".parse::<Roles>().is_err());
        assert!(Roles::ALL.holds(Roles::RESTORE) && !Roles::BACKUP.holds(Roles::RESTORE));
    }
}
