"""What a user tries without a cloud: an emulated cloud, a drill on it, tests of workflows."""
