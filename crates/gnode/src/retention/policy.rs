//! The text form of a policy: counts, periods of time, tags, ids, a size.

use std::fmt;
use std::str::FromStr;

use larder_format::ids::{ByteCount, JobId};

/// How many versions a rule keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keep {
    /// The rule is not asked for.
    #[default]
    None,
    /// At most this number.
    AtMost(u32),
    /// All of them.
    All,
}

impl Keep {
    /// Whether the rule may keep one more.
    pub(super) fn has_left(self) -> bool {
        match self {
            Self::None => false,
            Self::AtMost(count) => count > 0,
            Self::All => true,
        }
    }

    /// The same after one more was kept.
    pub(super) fn less_one(self) -> Self {
        match self {
            Self::AtMost(count) => Self::AtMost(count.saturating_sub(1)),
            other => other,
        }
    }
}

/// Text that is no number of versions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a number of snapshots, nor \"unlimited\"")]
pub struct ParseKeepError {
    /// The text.
    pub text: String,
}

impl FromStr for Keep {
    type Err = ParseKeepError;

    /// `7`, `unlimited`, or `-1`, which means the same.
    fn from_str(text: &str) -> Result<Self, ParseKeepError> {
        match text {
            "unlimited" | "-1" => Ok(Self::All),
            "0" => Ok(Self::None),
            number => match number.parse() {
                Ok(count) => Ok(Self::AtMost(count)),
                Err(_) => Err(ParseKeepError { text: text.to_owned() }),
            },
        }
    }
}

/// A length of time on the calendar: `2y5m7d3h`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Period {
    /// Years.
    pub years: u16,
    /// Months.
    pub months: u16,
    /// Days.
    pub days: u16,
    /// Hours.
    pub hours: u16,
}

/// Text that is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParsePeriodError {
    /// It has another form.
    #[error("{text:?} is not a period such as 2y5m7d3h (years, months, days, hours)")]
    Form {
        /// The text.
        text: String,
    },
    /// It has no length.
    #[error("a period must be more than 0")]
    Zero,
}

impl FromStr for Period {
    type Err = ParsePeriodError;

    fn from_str(text: &str) -> Result<Self, ParsePeriodError> {
        let wrong = || ParsePeriodError::Form { text: text.to_owned() };
        let mut period = Self::default();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
            let number: u16 = rest[..end].parse().map_err(|_| wrong())?;
            let field = match rest.as_bytes()[end] {
                b'y' => &mut period.years,
                b'm' => &mut period.months,
                b'd' => &mut period.days,
                b'h' => &mut period.hours,
                _ => return Err(wrong()),
            };
            *field = field.checked_add(number).ok_or_else(wrong)?;
            rest = &rest[end + 1..];
        }
        match period {
            _ if text.is_empty() => Err(wrong()),
            period if period == Self::default() => Err(ParsePeriodError::Zero),
            period => Ok(period),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, unit) in [(self.years, 'y'), (self.months, 'm'), (self.days, 'd'), (self.hours, 'h')] {
            if number > 0 {
                write!(f, "{number}{unit}")?;
            }
        }
        Ok(())
    }
}

/// The versions to keep. The default keeps none, which [`Policy::is_empty`] tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// The newest versions.
    pub last: Keep,
    /// The newest version of each of the last hours that have one.
    pub hourly: Keep,
    /// The same for days.
    pub daily: Keep,
    /// The same for weeks, Monday to Sunday.
    pub weekly: Keep,
    /// The same for months.
    pub monthly: Keep,
    /// The same for years.
    pub yearly: Keep,
    /// Every version that is at most this much older than the newest one, or newer.
    pub within: Option<Period>,
    /// Of those, the newest of each hour.
    pub within_hourly: Option<Period>,
    /// The same for days.
    pub within_daily: Option<Period>,
    /// The same for weeks.
    pub within_weekly: Option<Period>,
    /// The same for months.
    pub within_monthly: Option<Period>,
    /// The same for years.
    pub within_yearly: Option<Period>,
    /// Versions with all tags of any of these sets.
    pub tags: Vec<Vec<String>>,
    /// These versions.
    pub ids: Vec<JobId>,
    /// The newest versions that together fit into this size.
    pub size: Option<ByteCount>,
}

impl Policy {
    /// Whether it has no rule at all: then it cannot decide.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
