"""What a person writes in a stack file: read and checked where it enters, mistakes explained. Knows no resources."""
