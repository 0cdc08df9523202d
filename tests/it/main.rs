//! What the whole promises, one module for each section of the contract.

mod smoke;
