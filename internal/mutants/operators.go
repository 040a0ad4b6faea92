package main

var operators = []mutant{}
