//! Forgetting by a policy: nothing goes that the policy would keep if it knew the truth.
